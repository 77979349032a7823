import { newId } from '../../../lib/ids.ts'
import type { Json } from './ask.ts'
import type { Accepted, Caller } from './caller.ts'

/** The fields of a disk that tests read from the API. */
export interface DiskBody extends Json {
  id: string
  name: string
  status: string
  status_reason: string | null
  operation_id: string | null
  host_id: string
  size_gib: number
  attached_to: { kind: string; id: string; mount_path: string; read_only: boolean } | null
  condition: string
}

export function disksOf(caller: Caller) {
  const disks = {
    create: (over: Json = {}) =>
      caller.begin('POST', '/api/v1/disks', { name: `test-${newId().slice(-12)}`, size_gib: 1, ...over }),
    /** Creates a disk and waits until the operation succeeds. */
    make: async (over: Json = {}): Promise<DiskBody> => {
      const { id, operation } = await disks.create(over)
      await operation.success()
      return disks.get(id)
    },
    get: (id: string) => caller.get<DiskBody>(`/api/v1/disks/${id}`),
    update: (id: string, changes: Json) => caller.begin('PUT', `/api/v1/disks/${id}`, changes),
    delete: (id: string) => caller.begin('DELETE', `/api/v1/disks/${id}`),
    snapshot: (id: string, name: string) => caller.begin('POST', `/api/v1/disks/${id}/snapshots`, { name }),
    snapshots: async (id: string) =>
      (await caller.get<{ items: Json[] }>(`/api/v1/disks/${id}/snapshots?order=asc`)).items,
    removeSnapshot: (id: string, name: string) =>
      caller.begin('DELETE', `/api/v1/disks/${id}/snapshots/${name}`),
    /** Returns the new disk's `id`. */
    restore: async (id: string, name: string): Promise<Accepted> => {
      const accepted = await caller.begin('POST', `/api/v1/disks/${id}/snapshots/${name}/restore`)
      return { ...accepted, id: String(accepted.body['new_disk_id']) }
    },
    migrate: (id: string, target_host_id: string, more: Json = {}) =>
      caller.begin('POST', `/api/v1/disks/${id}/migrate`, { target_host_id, ...more }),
  }
  return disks
}
