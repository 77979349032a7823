import { askHttp, needSuccess } from '../../lib/http-answers.ts'
import { CallFault } from '../../lib/runner-calls.ts'
import { outbound } from '../outbound.ts'
import type { Definition } from './definitions.ts'
import { needAllowed } from './probes.ts'

// Documents of OpenAPI: stored with the tool, or fetched from its URL for each call.

type Json = Record<string, unknown>

/** The document, and the URL to which its server's is relative. Throws CallFault and ProbeFailed. */
export async function documentOf(
  of: Definition,
  headers: Record<string, string>,
  { withinMs, signal }: { withinMs: number; signal: AbortSignal },
): Promise<{ document: Json; base: string | null }> {
  const { document, url } = of
  if (document) return { document, base: null }
  if (url === null) throw new Error('the tool has no document')
  needAllowed(url, Object.keys(headers).length > 0 ? of : null)
  const answer = await askHttp(outbound(), url, {
    method: 'GET',
    headers: { accept: 'application/json', ...headers },
    withinMs,
    signal,
  })
  needSuccess(answer)
  const body = readJson(answer.body)
  const { openapi, paths } = Object(body) as Json
  const isOne = /^3\.[01]\.\d+$/.test(String(openapi)) && typeof paths === 'object' && paths !== null
  if (answer.status >= 300 || !isOne || JSON.stringify(body).length > mostChars)
    throw new CallFault(
      'document_unreadable',
      'The tool’s URL does not answer with an OpenAPI 3.0 or 3.1 document in JSON of at most 1 MiB',
      { permanent: true },
    )
  return { document: body as Json, base: url }
}

const mostChars = 1024 ** 2

/** Many servers give a file of JSON as a text. */
function readJson(body: unknown): unknown {
  if (typeof body !== 'string') return body
  try {
    return JSON.parse(body)
  } catch {
    return null
  }
}
