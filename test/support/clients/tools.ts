import { newId } from '../../../lib/ids.ts'
import type { Answer, Json } from './ask.ts'
import type { Caller } from './caller.ts'

/** The fields of a tool that tests read from the API. */
export interface ToolBody extends Json {
  id: string
  name: string
  url: string | null
  status: string
  secret_hint: string | null
  last_probe: { fault: { stage: string; reason: string } | null; tools_hash: string | null } | null
}

export const toolsPath = '/api/v1/tools'

/** The fields of a tool that is an MCP server. */
export const mcpTool = (url: string, more: Json = {}): Json => ({
  kind: 'mcp',
  transport: 'auto',
  url,
  ...more,
})
export const builtinTool: Json = { kind: 'builtin', builtin: 'search' }
/** Must not be shown anywhere: it is searched for at the end of all tests. */
export const newToolSecret = (): string => `planted-secret-of-a-tool-${newId()}`

/** The tools of a tenant. */
export function toolsOf(caller: Caller) {
  const create = (fields: Json): Promise<Answer> =>
    caller.ask('POST', toolsPath, { name: `tool-${newId().slice(-12)}`, ...fields })
  return {
    create,
    /** Must succeed. */
    async make(fields: Json): Promise<ToolBody> {
      const { status, body } = await create(fields)
      if (status !== 201) throw new Error(`${status} ${JSON.stringify(body)}`)
      return body as ToolBody
    },
    get: (id: string) => caller.get<ToolBody>(`${toolsPath}/${id}`),
    list: (query = '') => caller.get<{ items: ToolBody[]; total: number }>(`${toolsPath}${query}`),
    change: (id: string, changes: Json): Promise<Answer> => caller.ask('PUT', `${toolsPath}/${id}`, changes),
    delete: (id: string): Promise<Answer> => caller.ask('DELETE', `${toolsPath}/${id}`),
    probe: (id: string): Promise<Answer> => caller.ask('GET', `${toolsPath}/${id}/mcp-tools`),
    test: (id: string, body?: Json): Promise<Answer> => caller.ask('POST', `${toolsPath}/${id}/test`, body),
  }
}
