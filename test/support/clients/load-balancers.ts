import { newId } from '../../../lib/ids.ts'
import type { Answer, Json } from './ask.ts'
import type { Accepted, Caller } from './caller.ts'

/** The fields of a load balancer that tests read from the API. */
export interface LoadBalancerBody extends Json {
  id: string
  name: string
  status: string
  status_reason: string | null
  operation_id: string | null
  listeners: { port: number; protocol: string }[]
  endpoints: {
    host_id: string
    host_address: string
    ip_address: string
    state: string
    ports: { port: number; host_port: number; protocol: string }[]
  }[]
}

/** The fields of a route that tests read from the API. */
export interface RouteBody extends Json {
  id: string
  status: string
  status_reason: string | null
  targets: {
    id: string
    address: string | null
    nic_id: string | null
    host_id: string | null
    health_state: string
  }[]
}

/** A line of an access log. */
export interface AccessBody extends Json {
  time: string
  host_id: string
  began_at: string
  request_id: string | null
  route_id: string | null
  target_id: string | null
  path: string | null
  status: number | null
}

export interface LoadBalancerMetrics {
  step_sec: number
  series: {
    route_id: string | null
    target_id: string | null
    name: string
    unit: string
    points: [time: string, value: number][]
  }[]
}

const at = (id: string): string => `/api/v1/load-balancers/${id}`

export function loadBalancersOf(caller: Caller) {
  const balancers = {
    /** With one http listener on port 80, unless told otherwise. */
    create: (subnet_id: string, over: Json = {}): Promise<Accepted> =>
      caller.begin('POST', '/api/v1/load-balancers', {
        name: `lb-${newId().slice(-12)}`,
        subnet_id,
        listeners: [{ port: 80, protocol: 'http' }],
        health_check: { interval_sec: 1, timeout_sec: 1 },
        ...over,
      }),
    /** Creates a load balancer and waits until the operation succeeds. */
    make: async (subnet_id: string, over: Json = {}): Promise<LoadBalancerBody> => {
      const { id, operation } = await balancers.create(subnet_id, over)
      await operation.success()
      return balancers.get(id)
    },
    get: (id: string) => caller.get<LoadBalancerBody>(at(id)),
    update: (id: string, changes: Json) => caller.begin('PUT', at(id), changes),
    reschedule: (id: string, body?: Json) => caller.begin('POST', `${at(id)}/reschedule`, body),
    delete: (id: string) => caller.begin('DELETE', at(id)),
    activity: async (id: string) => (await caller.get<{ items: Json[] }>(`${at(id)}/activity`)).items,
    /** The lines that its hosts have. */
    logs: async (id: string, query = ''): Promise<AccessBody[]> => {
      const { status, body } = await caller.ask('GET', `${at(id)}/logs${query}`)
      if (status !== 200) throw new Error(`${status} ${JSON.stringify(body)}`)
      const lines = (body['text'] as string).split('\n')
      return lines.filter(Boolean).map((line) => JSON.parse(line) as AccessBody)
    },
    metrics: (id: string, query = '') => caller.get<LoadBalancerMetrics>(`${at(id)}/metrics${query}`),
    route: (id: string, body: Json): Promise<Answer> =>
      caller.ask('POST', `${at(id)}/routes`, { name: `route-${newId().slice(-12)}`, ...body }),
    /** Creates a route, which must succeed. */
    addRoute: async (id: string, body: Json): Promise<RouteBody> => {
      const answer = await balancers.route(id, body)
      if (answer.status !== 201) throw new Error(`${answer.status} ${JSON.stringify(answer.body)}`)
      return answer.body as RouteBody
    },
    getRoute: (id: string, routeId: string) => caller.get<RouteBody>(`${at(id)}/routes/${routeId}`),
    changeRoute: (id: string, routeId: string, changes: Json) =>
      caller.ask('PUT', `${at(id)}/routes/${routeId}`, changes),
    deleteRoute: (id: string, routeId: string) => caller.ask('DELETE', `${at(id)}/routes/${routeId}`),
  }
  return balancers
}
