import { newId } from '../../../lib/ids.ts'
import type { Answer, Json } from './ask.ts'
import type { Accepted, Caller } from './caller.ts'
import type { RunBody } from './applications.ts'

/** The fields of a service that tests read from the API. */
export interface ServiceBody extends Json {
  id: string
  name: string
  status: string
  status_reason: string | null
  worker: string | null
  containers: { name: string; image: string; state: string; ports: { port: number; url: string }[] }[]
}

export interface DiffBody extends Json {
  containers: { container: string; change: string; fields: string[] }[]
  volumes: { added: string[]; removed: string[] }
}

interface LineBody extends Json {
  line: string
  container: string
}

/** The services of one deploy server. */
export function servicesOf(caller: Caller, server: string) {
  const path = `/api/v1/deploy-servers/${server}/services`
  const services = {
    path,
    ask: (body: Json): Promise<Answer> => caller.ask('POST', path, { name: newName(), ...body }),
    create: (body: Json): Promise<Accepted> => caller.begin('POST', path, { name: newName(), ...body }),
    make: async (body: Json): Promise<ServiceBody> => {
      const { id, operation } = await services.create(body)
      await operation.success()
      return services.get(id)
    },
    get: (id: string) => caller.get<ServiceBody>(`${path}/${id}`),
    compose: (id: string) =>
      caller.get<{ docker_compose: string; envs: Json; generated: Record<string, string> }>(
        `${path}/${id}/compose`,
      ),
    preview: async (id: string, changes: Json) =>
      (await caller.ask('PATCH', `${path}/${id}`, { ...changes, dry_run: true })).body['changes'] as DiffBody,
    update: (id: string, changes: Json): Promise<Accepted> => caller.begin('PATCH', `${path}/${id}`, changes),
    do: (id: string, verb: 'start' | 'stop' | 'restart'): Promise<Accepted> =>
      caller.begin('POST', `${path}/${id}/${verb}`),
    delete: (id: string, volumes = true): Promise<Accepted> =>
      caller.begin('DELETE', `${path}/${id}?delete_volumes=${volumes}`),
    addTask: (id: string, body: Json): Promise<Answer> =>
      caller.ask('POST', `${path}/${id}/scheduled-tasks`, {
        name: newName(),
        frequency: '0 0 1 1 *',
        ...body,
      }),
    /** Runs a command in a container. Returns its output. */
    run: async (id: string, container: string, command: string): Promise<string> => {
      const { body } = await services.addTask(id, { container, command })
      const task = String(body['id'])
      const { operation } = await caller.begin('POST', `${path}/${id}/scheduled-tasks/${task}/run`)
      await operation.success()
      const runs = await caller.get<{ items: RunBody[] }>(`${path}/${id}/scheduled-tasks/${task}/runs`)
      return runs.items[0]?.output.trim() ?? ''
    },
    /** Its output, as objects. */
    logs: async (id: string, query = ''): Promise<LineBody[]> =>
      String((await caller.ask('GET', `${path}/${id}/logs${query}`)).body['text'])
        .split('\n')
        .filter(Boolean)
        .map((line) => JSON.parse(line) as LineBody),
  }
  return services
}

const newName = (): string => `svc-${newId().slice(-12)}`
