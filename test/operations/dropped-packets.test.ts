import { setTimeout as delay } from 'node:timers/promises'
import { expect, test } from '@jest/globals'
import { type Answer, Operation, sleeper } from '../support/client.ts'
import { describeHosts } from '../support/describe-hosts.ts'
import { eventually } from '../support/eventually.ts'
import { placesOf } from '../support/hosts.ts'
import { interrupted, stories, tenant } from '../support/interrupted.ts'
import type { RoleName } from '../support/platform.ts'
import { roleThrough, type Way } from '../support/role-through.ts'
import { sampled } from '../support/sampled.ts'
import { openSilentProxy } from '../support/silent-proxy.ts'
import { facts, layout } from '../support/stack.ts'
import { within } from '../support/stories.ts'

// Between two roles, every packet is dropped in the middle of an operation, for longer than each side waits, and then passes
// again. Both sides go on meanwhile, and their connections stay open. test/server/silent-database.test.ts does the same with
// MongoDB.

/** How one role reaches another through a proxy. */
interface Link {
  role: RoleName
  open: () => Promise<Way>
}

const local = (port: number): string => `127.0.0.1:${port}`
const through = async (setting: string, port: number, scheme = ''): Promise<Way> => {
  const proxy = await openSilentProxy(port)
  return { proxy, settings: { [setting]: `${scheme}${local(proxy.port)}` } }
}
const temporal = () => Number(facts().temporal_address.split(':')[1])
const api = () => Number(new URL(facts().api_url).port)
/** Another address of this machine: the platform still reaches the host only where it enrolled, which is the proxy. */
const elsewhere = '127.0.0.2'

const links: Record<string, Link> = {
  'worker and Temporal': { role: 'worker', open: () => through('KEELSON_TEMPORAL_ADDRESS', temporal()) },
  'api and Temporal': { role: 'api', open: () => through('KEELSON_TEMPORAL_ADDRESS', temporal()) },
  'host and gateway': {
    role: 'host',
    open: () => through('KEELSON_GATEWAY_URL', layout.gatewayPort, 'http://'),
  },
  'host and internal API': { role: 'host', open: () => through('KEELSON_API_URL', api(), 'http://') },
  'api and the data plane of the host': {
    role: 'host',
    open: async () => {
      const proxy = await openSilentProxy({ host: elsewhere, port: layout.hostPort }, layout.hostPort)
      return { proxy, settings: { KEELSON_HOST_PLANE_ADDRESS: elsewhere } }
    },
  },
}

/** Seconds: a host is unreachable after 30 s, and its step is taken for lost after 10 s. */
const silentSec = 45
/** What a client waits for an answer in the silence, in seconds. */
const patienceSec = 30

async function ask(method: string, path: string, body?: unknown): Promise<Answer> {
  const begun = performance.now()
  const late = delay(patienceSec * 1000, null, { ref: false })
  const answer = await Promise.race([tenant.owner.ask(method, path, body), late])
  const words = `${method} ${path.replace(/[0-9a-f-]{36}/, '…')}: ${answer?.status ?? 'no answer'}`
  console.log(`${words} after ${Math.round(performance.now() - begun)} ms`)
  if (!answer) throw new Error(`${words} after ${patienceSec} s`)
  return answer
}

/** Requests in the silence. Each is answered in time: with what it asked for, or with 503. */
async function askMeanwhile(witness: string): Promise<Answer> {
  const [created, list, logs] = await Promise.all([
    ask('POST', '/api/v1/containers', sleeper()),
    ask('GET', '/api/v1/containers'),
    ask('GET', `/api/v1/containers/${witness}/logs?lines=1`),
  ])
  expect([created.status, list.status]).toEqual([202, 200])
  expect([200, 503]).toContain(logs.status)
  return created
}

/** The operation has ended, once, and says what is true. */
async function expectCreated({ body, headers }: Answer): Promise<void> {
  const operation = new Operation(tenant.owner, headers.get('operation-location') ?? '')
  const { state } = await operation.end(within)
  const found = async (): Promise<string> =>
    (await placesOf(String(body['id']))).map((place) => place.state).join()
  await eventually(async () => (await found()) === (state === 'succeeded' ? 'running' : ''))
}

// The creation of another container begins in the silence.
const cases = stories.flatMap(({ verb, story }) =>
  Object.entries(links).map(([between, link]) => ({ verb, story, between, link })),
)

describeHosts('with dropped packets in the middle,', () => {
  test.each(sampled(cases, 1))(
    '$verb takes effect once, or says why not: between $between',
    async ({ story, link }) => {
      const { proxy, end } = await roleThrough(link.role, link.open)
      try {
        const { id: witness } = await tenant.containers.make()
        await tenant.owner.get(`/api/v1/containers/${witness}/logs?lines=1`) // its connection is kept
        const created = await interrupted(story, async () => {
          proxy.silence()
          const [answer] = await Promise.all([askMeanwhile(witness), delay(silentSec * 1000)])
          proxy.pass()
          return answer
        })
        await expectCreated(created)
      } finally {
        await end()
      }
    },
  )
})
