import { newId } from '../../../lib/ids.ts'
import type { Answer, Json } from './ask.ts'
import type { Caller } from './caller.ts'

/** The fields of a tenant's bucket for backups that tests read from the API. */
export interface BackupTargetBody extends Json {
  id: string
  name: string
  prefix: string
  access_key_id: string
  fault: { step: string; reason: string; message: string } | null
}

/** The buckets of a tenant for backups. */
export function backupTargetsOf(caller: Caller) {
  const path = '/api/v1/backup-targets'
  return {
    create: (fields: Json): Promise<Answer> =>
      caller.ask('POST', path, { name: `bucket-${newId().slice(-12)}`, ...fields }),
    get: (id: string) => caller.get<BackupTargetBody>(`${path}/${id}`),
    list: async () => (await caller.get<{ items: BackupTargetBody[] }>(path)).items,
    change: (id: string, changes: Json): Promise<Answer> => caller.ask('PATCH', `${path}/${id}`, changes),
    check: (id: string): Promise<Answer> => caller.ask('POST', `${path}/${id}/check`),
    delete: (id: string, query = ''): Promise<Answer> => caller.ask('DELETE', `${path}/${id}${query}`),
  }
}
