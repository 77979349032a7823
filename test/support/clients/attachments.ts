import type { Answer, Json } from './ask.ts'
import type { Accepted, Caller } from './caller.ts'

/** The fields of an attached database that tests read from the API. */
export interface AttachmentBody extends Json {
  database_id: string
  config_var: string
  user: string
  address: string
  status: string
  applied: boolean
  reachable: boolean | null
}

/** The attached databases of one container or microVM. */
export function attachmentsOf(caller: Caller, plural: 'containers' | 'microvms', id: string) {
  const path = `/api/v1/${plural}/${id}`
  return {
    ask: (database_id: string, more: Json = {}): Promise<Answer> =>
      caller.ask('POST', `${path}/attachments/database`, { database_id, ...more }),
    attach: (database_id: string, more: Json = {}): Promise<Accepted> =>
      caller.begin('POST', `${path}/attachments/database`, { database_id, ...more }),
    detach: (database_id: string): Promise<Accepted> =>
      caller.begin('DELETE', `${path}/attachments/database/${database_id}`),
    list: async () => (await caller.get<{ items: AttachmentBody[] }>(`${path}/attachments`)).items,
    vars: async () =>
      (await caller.get<{ config_vars: Record<string, string> }>(`${path}/config-vars`)).config_vars,
    setVars: (config_vars: Json): Promise<Answer> =>
      caller.ask('PUT', `${path}/config-vars`, { config_vars }),
  }
}
