import type { Answer, Json } from './ask.ts'
import type { Accepted, Caller } from './caller.ts'

/** The fields of `GET /rag` that tests read. */
export interface StoreBody extends Json {
  enabled: boolean
  ready: boolean
  status: string | null
  status_reason: string | null
  id: string | null
  subnet_id: string | null
  endpoint: string | null
  certificate_pem: string | null
  snapshots: { frequency: string | null; keep: number; next_at: string | null } | null
}

export interface StoreCredentials {
  endpoint: string
  token: string
  certificate_pem: string
}

/** Small: tests have little room. */
const small = { cpu_cores: 0.5, memory_mib: 512, size_gib: 1 }

/** A tenant's store of retrieval. */
export function ragStoreOf(caller: Caller) {
  const path = '/api/v1/rag'
  return {
    now: (): Promise<StoreBody> => caller.get<StoreBody>(path),
    credentials: (): Promise<StoreCredentials> => caller.get<StoreCredentials>(`${path}/credentials`),
    ask: (verb: 'enable' | 'disable' | 'rotate', body?: Json): Promise<Answer> =>
      caller.ask('POST', `${path}/${verb}`, body),
    /** The request must be accepted. */
    enable: (subnet_id: string, over: Json = {}): Promise<Accepted> =>
      caller.begin('POST', `${path}/enable`, { subnet_id, ...small, ...over }),
    disable: (): Promise<Accepted> => caller.begin('POST', `${path}/disable`),
    rotate: (): Promise<Accepted> => caller.begin('POST', `${path}/rotate`),
    askSnapshots: (rules: Json): Promise<Answer> => caller.ask('PUT', `${path}/snapshots`, rules),
    takeSnapshot: (): Promise<Accepted> => caller.begin('POST', `${path}/snapshots`),
    /** Their names, the newest first. */
    snapshots: async (): Promise<string[]> =>
      (
        await caller.get<{ items: { name: string }[] }>(`${path}/snapshots?sort_by=created_at&order=desc`)
      ).items.map(({ name }) => name),
    askRestore: (snapshot: string): Promise<Answer> => caller.ask('POST', `${path}/restore`, { snapshot }),
    restore: (snapshot: string): Promise<Accepted> => caller.begin('POST', `${path}/restore`, { snapshot }),
  }
}
