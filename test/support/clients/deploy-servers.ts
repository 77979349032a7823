import type { Json } from './ask.ts'
import type { Accepted, Caller } from './caller.ts'

/** The fields of a deploy server that tests read from the API. */
export interface DeployServerBody extends Json {
  id: string
  name: string
  status: string
  status_reason: string | null
  operation_id: string | null
  init_step: string | null
  worker_count: number
  control_plane: NodeBody | null
  workers: NodeBody[]
  vpc_id: string
  subnet_id: string
  lb_id: string
}

export interface NodeBody {
  name: string
  machine_id: string
  ip_address: string
  instance_type: string
  disk_gib: number
  registered: boolean
}

const path = '/api/v1/deploy-servers'

/** Small machines, since several tests run at once. */
const small = {
  worker_count: 1,
  worker_instance_type: 'mini',
  worker_disk_gib: 2,
  app_instance_type: 'mini',
}

export function deployServersOf(caller: Caller) {
  const servers = {
    create: (over: Json = {}): Promise<Accepted> => caller.begin('POST', path, { ...small, ...over }),
    /** Creates a deploy server and waits until it is ready. */
    make: async (over: Json = {}): Promise<DeployServerBody> => {
      const { id, operation } = await servers.create(over)
      await operation.success()
      return servers.get(id)
    },
    get: (id: string) => caller.get<DeployServerBody>(`${path}/${id}`),
    update: (id: string, changes: Json) => caller.begin('PUT', `${path}/${id}`, changes),
    delete: (id: string) => caller.begin('DELETE', `${path}/${id}`),
  }
  return servers
}
