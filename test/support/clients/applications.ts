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
  phases: { phase: string; at: string }[]
  log: { time: string; line: string }[]
}

const at = (server: string): string => `/api/v1/deploy-servers/${server}`

/** The applications of one deploy server. */
export function applicationsOf(caller: Caller, server: string) {
  const path = `${at(server)}/applications`
  const applications = {
    /** Creates an application of the image `demo` (test/support/app-images.ts), and deploys it. */
    create: (over: Json = {}): Promise<Accepted> =>
      caller.begin('POST', path, {
        name: `app-${newId().slice(-12)}`,
        image: 'demo',
        tag: 'v1',
        port: 3000,
        memory_mib: 32,
        stop_grace_sec: 1,
        ...over,
      }),
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
    delete: (id: string): Promise<Accepted> => caller.begin('DELETE', `${path}/${id}`),
    setEnvs: (id: string, envs: Json): Promise<Answer> => caller.ask('POST', `${path}/${id}/envs`, { envs }),
    envs: async (id: string) => (await caller.get<{ envs: Json }>(`${path}/${id}/envs`)).envs,
    deployment: (id: string) => caller.get<DeploymentBody>(`${at(server)}/deployments/${id}`),
    deployments: async (query = '') =>
      (await caller.get<{ items: DeploymentBody[] }>(`${at(server)}/deployments?limit=100${query}`)).items,
    cancel: (id: string): Promise<Answer> => caller.ask('POST', `${at(server)}/deployments/${id}/cancel`),
  }
  return applications
}
