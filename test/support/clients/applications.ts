import { newId } from '../../../lib/ids.ts'
import type { Answer, Json } from './ask.ts'
import type { Accepted, Caller } from './caller.ts'

/** The fields of an application that tests read from the API. */
export interface ApplicationBody extends Json {
  id: string
  name: string
  status: string
  url: string
  tag: string
  deployment_id: string | null
}

/** The fields of a deployment that tests read from the API. */
export interface DeploymentBody extends Json {
  id: string
  number: number
  kind: string
  status: string
  status_reason: string | null
  tag: string
  operation_id: string | null
  phases: { phase: string; at: string; duration_ms: number | null }[]
  log: { time: string; line: string }[]
}

/** The fields of a run of a scheduled task that tests read from the API. */
export interface RunBody extends Json {
  id: string
  status: string
  status_reason: string | null
  scheduled_at: string | null
  exit_code: number | null
  output: string
  operation_id: string | null
}

interface LogBody extends Json {
  line: string
  worker: string
  deployment_id: string
  replica: string
}

const at = (server: string): string => `/api/v1/deploy-servers/${server}`

interface SeriesBody {
  name: string
  points: [string, number][]
}

interface ActivityBody extends Json {
  time: string
  kind: string
  message: string
}

export interface DomainBody extends Json {
  id: string
  status: string
  status_reason: string | null
  name: string
  redirect_to: string | null
  url: string | null
  certificate_id: string | null
}

/** Of an application of the image `demo` (test/support/app-images.ts). */
const fieldsOf = (over: Json): Json => ({
  name: `app-${newId().slice(-12)}`,
  image: 'demo',
  tag: 'v1',
  port: 3000,
  memory_mib: 32,
  stop_grace_sec: 1,
  ...over,
})

/** The applications of one deploy server. */
export function applicationsOf(caller: Caller, server: string) {
  const path = `${at(server)}/applications`
  const applications = {
    /** Creates an application, and deploys it. */
    create: (over: Json = {}): Promise<Accepted> => caller.begin('POST', path, fieldsOf(over)),
    /** Creates one that is not deployed yet. Returns its id. */
    prepare: async (over: Json = {}): Promise<string> => {
      const { status, body } = await caller.ask('POST', path, fieldsOf({ ...over, deploy: false }))
      if (status !== 201) throw new Error(`POST ${path} -> ${status} ${JSON.stringify(body)}`)
      return String(body['id'])
    },
    make: async (over: Json = {}): Promise<ApplicationBody> => {
      const { id, operation } = await applications.create(over)
      await operation.success()
      return applications.get(id)
    },
    get: (id: string) => caller.get<ApplicationBody>(`${path}/${id}`),
    change: (id: string, changes: Json): Promise<Answer> => caller.ask('PATCH', `${path}/${id}`, changes),
    deploy: (id: string, body: Json = {}): Promise<Accepted> =>
      caller.begin('POST', `${path}/${id}/deploy`, body),
    restart: (id: string): Promise<Accepted> => caller.begin('POST', `${path}/${id}/restart`),
    stop: (id: string): Promise<Accepted> => caller.begin('POST', `${path}/${id}/stop`),
    list: async () => (await caller.get<{ items: ApplicationBody[] }>(`${path}?limit=100`)).items,
    delete: (id: string): Promise<Accepted> => caller.begin('DELETE', `${path}/${id}`),
    setEnvs: (id: string, envs: Json): Promise<Answer> => caller.ask('POST', `${path}/${id}/envs`, { envs }),
    envs: async (id: string) => (await caller.get<{ envs: Json }>(`${path}/${id}/envs`)).envs,
    deployment: (id: string) => caller.get<DeploymentBody>(`${at(server)}/deployments/${id}`),
    deployments: async (query = '') =>
      (await caller.get<{ items: DeploymentBody[] }>(`${at(server)}/deployments?limit=100${query}`)).items,
    /** Its output, as objects. */
    logs: async (id: string, query = ''): Promise<LogBody[]> =>
      String((await caller.ask('GET', `${path}/${id}/logs${query}`)).body['text'])
        .split('\n')
        .filter(Boolean)
        .map((line) => JSON.parse(line) as LogBody),
    metrics: async (id: string) =>
      (await caller.get<{ series: SeriesBody[] }>(`${path}/${id}/metrics`)).series,
    activity: async (id: string) =>
      (await caller.get<{ items: ActivityBody[] }>(`${path}/${id}/activity`)).items,
    addTask: (id: string, body: Json): Promise<Answer> =>
      caller.ask('POST', `${path}/${id}/scheduled-tasks`, {
        name: `task-${newId().slice(-12)}`,
        frequency: '0 0 1 1 *',
        ...body,
      }),
    runTask: (id: string, task: string): Promise<Accepted> =>
      caller.begin('POST', `${path}/${id}/scheduled-tasks/${task}/run`),
    runs: async (id: string, task: string) =>
      (await caller.get<{ items: RunBody[] }>(`${path}/${id}/scheduled-tasks/${task}/runs?limit=100`)).items,
    addStorage: (id: string, mount_path: string): Promise<Answer> =>
      caller.ask('POST', `${path}/${id}/storages`, { mount_path }),
    removeStorage: (id: string, storage: string): Promise<Answer> =>
      caller.ask('DELETE', `${path}/${id}/storages/${storage}`),
    addDomain: (
      id: string,
      body: { name: string; tls?: boolean; redirect_to?: string; redirect_to_https?: boolean },
    ): Promise<Accepted> => caller.begin('POST', `${path}/${id}/domains`, body),
    domain: (id: string, domain: string) => caller.get<DomainBody>(`${path}/${id}/domains/${domain}`),
    retryDomain: (id: string, domain: string): Promise<Accepted> =>
      caller.begin('POST', `${path}/${id}/domains/${domain}/retry`),
    removeDomain: (id: string, domain: string): Promise<Accepted> =>
      caller.begin('DELETE', `${path}/${id}/domains/${domain}`),
    /** Pushes a .tgz as an artifact. */
    push: (name: string, archive: Uint8Array): Promise<Accepted> =>
      caller.begin('POST', `${at(server)}/artifacts`, {
        name,
        content_b64: Buffer.from(archive).toString('base64'),
      }),
    artifact: (id: string) => caller.get(`${at(server)}/artifacts/${id}`),
    cancel: (id: string): Promise<Answer> => caller.ask('POST', `${at(server)}/deployments/${id}/cancel`),
  }
  return applications
}
