import { randomInt } from 'node:crypto'
import { once } from 'node:events'
import { type IncomingMessage, request } from 'node:http'
import { json } from 'node:stream/consumers'
import { plant } from '../planted.ts'
import { facts } from '../stack.ts'
import type { Answer, Json } from './ask.ts'
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

export interface CredentialsBody extends Json {
  dashboard_url: string
  api_base_url: string
  root_login: string
  root_password: string
  api_token: string
  registry: string
  registry_user: string
  worker_id: string
}

export interface NodeBody {
  name: string
  machine_id: string
  ip_address: string
  instance_type: string
  disk_gib: number
  registered: boolean
  lost_at: string | null
}

const path = '/api/v1/deploy-servers'

/** Small machines, since several tests run at once. */
const small = {
  worker_count: 1,
  worker_instance_type: 'mini',
  worker_disk_gib: 2,
  app_instance_type: 'mini',
}

/** An address of this process alone: failed logins are counted by address, and other tests fail to log in too. */
const localAddress = `127.${randomInt(1, 255)}.${randomInt(255)}.${randomInt(1, 255)}`

/** Logs in with the root credentials of a deploy server, at an api replica. */
export async function rootLogin(
  id: string,
  login: string,
  password: string,
  replica = facts().api_url,
): Promise<Answer> {
  const body = { login, password }
  const headers = { 'content-type': 'application/json' }
  const sent = request(new URL(`${path}/${id}/login`, replica), {
    method: 'POST',
    localAddress,
    headers,
  })
  sent.end(JSON.stringify(body))
  const [answer] = (await once(sent, 'response')) as [IncomingMessage]
  const read = {
    status: answer.statusCode ?? 0,
    headers: new Headers(answer.headers as Record<string, string>),
    body: (await json(answer)) as Json,
  }
  plant(undefined, body, read)
  return read
}

export function deployServersOf(caller: Caller) {
  const servers = {
    /** The answer to a creation: 202, or 200 with the deploy server that the tenant has. */
    ask: (over: Json = {}): Promise<Answer> => caller.ask('POST', path, { ...small, ...over }),
    create: (over: Json = {}): Promise<Accepted> => caller.begin('POST', path, { ...small, ...over }),
    /** Creates a deploy server and waits until it is ready. */
    make: async (over: Json = {}): Promise<DeployServerBody> => {
      const { id, operation } = await servers.create(over)
      await operation.success()
      return servers.get(id)
    },
    get: (id: string) => caller.get<DeployServerBody>(`${path}/${id}`),
    update: (id: string, changes: Json) => caller.begin('PUT', `${path}/${id}`, changes),
    credentials: (id: string) => caller.get<CredentialsBody>(`${path}/${id}/credentials`),
    delete: (id: string) => caller.begin('DELETE', `${path}/${id}`),
  }
  return servers
}
