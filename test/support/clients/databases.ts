import { newId } from '../../../lib/ids.ts'
import { isLong } from '../long.ts'
import type { Answer, Json } from './ask.ts'
import type { Accepted, Caller } from './caller.ts'

/** The fields of a database that tests read from the API. */
export interface DatabaseBody extends Json {
  id: string
  name: string
  type: string
  version: string
  status: string
  status_reason: string | null
  connection_string: string | null
  public_host: string | null
  public_port: number | null
  public_connection_string: string | null
  tls_certificate_pem: string
  tls_server_name: string
  pending_changes: boolean
  major_upgrades: string[]
  former_volumes: { id: string; version: string }[]
  point_in_time: {
    enabled: boolean
    status: string
    reason: string | null
    earliest: string | null
    latest: string | null
    ranges: { earliest: string; latest: string }[]
  } | null
}

/** The fields of a backup that tests read from the API. */
export interface ExecutionBody extends Json {
  id: string
  status: string
  reason: string | null
  backup_id: string | null
  target_id: string | null
  location: string | null
  size_bytes: number | null
  dump_bytes: number | null
  method: string
  verified: { by: string; at: string; tables: number; rows: number } | null
}

interface DatabaseMetricsBody {
  series: { name: string; unit: string; points: [string, number][] }[]
}

/** The databases of one deploy server. */
export function databasesOf(caller: Caller, server: string) {
  const at = `/api/v1/deploy-servers/${server}`
  const path = `${at}/databases`
  const databases = {
    /** Creates a Redis, which is the smallest, unless `over` names another type. */
    create: (over: Json = {}): Promise<Accepted> =>
      caller.begin('POST', path, {
        name: `db-${newId().slice(-12)}`,
        type: 'redis',
        memory_mib: isLong ? 128 : 32, // 100,000 rows in the long form
        ...over,
      }),
    make: async (over: Json = {}): Promise<DatabaseBody> => {
      const { id, operation } = await databases.create(over)
      await operation.success()
      return databases.get(id)
    },
    ask: (body: Json): Promise<Answer> => caller.ask('POST', path, body),
    get: (id: string) => caller.get<DatabaseBody>(`${path}/${id}`),
    list: async () => (await caller.get<{ items: DatabaseBody[] }>(`${path}?limit=100`)).items,
    change: (id: string, changes: Json): Promise<Answer> => caller.ask('PATCH', `${path}/${id}`, changes),
    start: (id: string): Promise<Accepted> => caller.begin('POST', `${path}/${id}/start`),
    stop: (id: string): Promise<Accepted> => caller.begin('POST', `${path}/${id}/stop`),
    restart: (id: string): Promise<Accepted> => caller.begin('POST', `${path}/${id}/restart`),
    delete: (id: string, query = '?delete_volumes=true'): Promise<Accepted> =>
      caller.begin('DELETE', `${path}/${id}${query}`),
    publish: (id: string): Promise<Accepted> => caller.begin('POST', `${path}/${id}/publish`),
    unpublish: (id: string): Promise<Accepted> => caller.begin('POST', `${path}/${id}/unpublish`),
    storages: async (id: string) =>
      (await caller.get<{ items: { id: string; name: string }[] }>(`${path}/${id}/storages`)).items,
    addStorage: (id: string, mount_path: string): Promise<Answer> =>
      caller.ask('POST', `${path}/${id}/storages`, { mount_path }),
    removeStorage: (id: string, storage: string): Promise<Answer> =>
      caller.ask('DELETE', `${path}/${id}/storages/${storage}`),
    logs: async (id: string) => String((await caller.ask('GET', `${path}/${id}/logs`)).body['text']),
    metrics: async (id: string) =>
      (await caller.get<DatabaseMetricsBody>(`${path}/${id}/metrics?step_sec=10`)).series,
    activity: async (id: string) =>
      (await caller.get<{ items: { kind: string; message: string }[] }>(`${path}/${id}/activity`)).items,
    backUp: (id: string, body?: Json): Promise<Accepted> =>
      caller.begin('POST', `${path}/${id}/backup-executions`, body),
    execution: (id: string) => caller.get<ExecutionBody>(`${at}/backup-executions/${id}`),
    executions: async (query = '') =>
      (await caller.get<{ items: ExecutionBody[] }>(`${at}/backup-executions?limit=100${query}`)).items,
    executionsOf: async (id: string, backup: string) =>
      (await caller.get<{ items: ExecutionBody[] }>(`${path}/${id}/backups/${backup}/executions`)).items,
    verify: (id: string): Promise<Accepted> => caller.begin('POST', `${at}/backup-executions/${id}/verify`),
    deleteExecution: (id: string): Promise<Accepted> =>
      caller.begin('DELETE', `${at}/backup-executions/${id}`),
    schedule: (id: string, body: Json): Promise<Answer> => caller.ask('POST', `${path}/${id}/backups`, body),
    changeSchedule: (id: string, backup: string, changes: Json): Promise<Answer> =>
      caller.ask('PATCH', `${path}/${id}/backups/${backup}`, changes),
    deleteSchedule: (id: string, backup: string): Promise<Answer> =>
      caller.ask('DELETE', `${path}/${id}/backups/${backup}`),
    restore: (id: string, execution_id: string): Promise<Accepted> =>
      caller.begin('POST', `${path}/${id}/restore`, { execution_id }),
    recover: (id: string, moment: string): Promise<Accepted> =>
      caller.begin('POST', `${path}/${id}/restore`, { at: moment }),
    askRecovery: (id: string, moment: string): Promise<Answer> =>
      caller.ask('POST', `${path}/${id}/restore`, { at: moment }),
    goBack: (id: string, volume_id: string): Promise<Accepted> =>
      caller.begin('POST', `${path}/${id}/restore`, { volume_id }),
    askGoingBack: (id: string, volume_id: string): Promise<Answer> =>
      caller.ask('POST', `${path}/${id}/restore`, { volume_id }),
    upgrade: (id: string, version: string): Promise<Accepted> =>
      caller.begin('POST', `${path}/${id}/upgrade`, { version }),
    deleteFormerVolume: (id: string, volume: string): Promise<Answer> =>
      caller.ask('DELETE', `${path}/${id}/former-volumes/${volume}`),
    keptVolumes: async () =>
      (await caller.get<{ items: { id: string; name: string }[] }>(`${at}/kept-volumes`)).items,
    destroyKept: (id: string): Promise<Accepted> => caller.begin('DELETE', `${at}/kept-volumes/${id}`),
  }
  return databases
}
