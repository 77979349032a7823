import type { Answer, Json } from './ask.ts'
import type { Caller } from './caller.ts'

/** The fields of a connector that tests read from the API. */
export interface ConnectorBody extends Json {
  id: string
  name: string
  provider: string
  kind: string
  base_url: string
  account: { id: string; login: string } | null
  is_default: boolean
  status: string
  status_reason: string | null
  secret_hint: string | null
  expires_at: string | null
  version: number
}

/** The connectors of a tenant. */
export function connectorsOf(caller: Caller) {
  const path = '/api/v1/connectors'
  const post = (what: string, body: Json): Promise<Answer> => caller.ask('POST', `${path}/${what}`, body)
  return {
    list: async (query = '') => (await caller.get<{ items: ConnectorBody[] }>(`${path}${query}`)).items,
    get: (id: string) => caller.get<ConnectorBody>(`${path}/${id}`),
    activity: async (id: string) => (await caller.get<{ items: Json[] }>(`${path}/${id}/activity`)).items,
    import: (fields: Json) => post('import', fields),
    rename: (id: string, name: string): Promise<Answer> => caller.ask('PATCH', `${path}/${id}`, { name }),
    makeDefault: (id: string): Promise<Answer> => caller.ask('POST', `${path}/${id}/default`),
    check: (id: string): Promise<Answer> => caller.ask('POST', `${path}/${id}/check`),
    delete: (id: string, query = ''): Promise<Answer> => caller.ask('DELETE', `${path}/${id}${query}`),
    startDevice: (fields: Json) => post('device/start', fields),
    pollDevice: (login_id: string, more: Json = {}) => post('device/poll', { login_id, ...more }),
    startOauth: (fields: Json) => post('oauth/start', fields),
    completeOauth: (fields: Json) => post('oauth/complete', fields),
  }
}
