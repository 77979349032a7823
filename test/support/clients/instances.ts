import type { Json } from './ask.ts'
import type { Caller } from './caller.ts'
import type { ContainerBody } from './containers.ts'

/**
 * The verbs of all kinds of instances. `fresh` returns the body of a small instance, with the given fields replaced.
 */
export function instancesOf(caller: Caller, plural: string, fresh: (over: Json) => Json) {
  const path = `/api/v1/${plural}`
  const get = (id: string) => caller.get<ContainerBody>(`${path}/${id}`)
  const create = (over: Json = {}, headers?: Record<string, string>) =>
    caller.begin('POST', path, fresh(over), headers)
  return {
    create,
    /** Creates an instance and waits until the operation succeeds. */
    make: async (over: Json = {}, withinMs?: number): Promise<ContainerBody> => {
      const { id, operation } = await create(over)
      await operation.success(withinMs)
      return get(id)
    },
    get,
    update: (id: string, changes: Json) => caller.begin('PUT', `${path}/${id}`, changes),
    start: (id: string) => caller.begin('POST', `${path}/${id}/start`),
    stop: (id: string, body: Json = { grace_sec: 0 }) => caller.begin('POST', `${path}/${id}/stop`, body),
    reschedule: (id: string, body: Json = { grace_sec: 0 }) =>
      caller.begin('POST', `${path}/${id}/reschedule`, body),
    delete: (id: string) => caller.begin('DELETE', `${path}/${id}`),
    attach: (id: string, disk_id: string, mount_path = '/data', more: Json = {}) =>
      caller.begin('POST', `${path}/${id}/disks`, { disk_id, mount_path, ...more }),
    detach: (id: string, disk_id: string) => caller.begin('DELETE', `${path}/${id}/disks/${disk_id}`),
    activity: async (id: string) =>
      (await caller.get<{ items: Json[] }>(`${path}/${id}/activity?order=asc`)).items,
  }
}
