import { setTimeout as delay } from 'node:timers/promises'
import { expect, test } from '@jest/globals'
import { runIn } from '../../drivers/linux/commands.ts'
import { type Answer, Operation, sleeper } from '../support/client.ts'
import { describeHosts, second } from '../support/describe-hosts.ts'
import { eventually } from '../support/eventually.ts'
import { namespaceOf } from '../support/host-networks.ts'
import { placesOf } from '../support/hosts.ts'
import { interrupted, stories, tenant } from '../support/interrupted.ts'
import type { RoleName } from '../support/platform.ts'
import { roleThrough, type Way } from '../support/role-through.ts'
import { sampled } from '../support/sampled.ts'
import { openSilentProxy } from '../support/silent-proxy.ts'
import { facts, layout } from '../support/stack.ts'

// Between two roles, every packet is dropped in the middle of an operation, for longer than each side waits, and then passes
// again. Both sides go on meanwhile, and their connections stay open. test/server/silent-database.test.ts does the same with
// MongoDB.

/** What two roles send each other. */
interface Between {
  silence: () => unknown
  pass: () => unknown
  /** The roles run as before. */
  end: () => Promise<void>
}

interface Link {
  open: () => Promise<Between>
  /** How long it is silent. A host is unreachable after 30 s, and its step is taken for lost after 10 s. */
  sec?: number
  /** By default all. */
  verbs?: string[]
}

/** The role reaches the other one through a proxy. */
async function by(role: RoleName, way: () => Promise<Way>): Promise<Between> {
  const { proxy, end } = await roleThrough(role, way)
  return { ...proxy, end }
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

const dropping = (hook: string, port: string): string =>
  `chain ${hook} { type filter hook ${hook} priority 0; tcp ${port} ${layout.diskPorts} drop; }`

/** What the second host fetches of disks from others is dropped in its own namespace. */
async function betweenHosts(): Promise<Between> {
  const namespace = namespaceOf(second)
  const table = 'inet keelson_test_silence'
  const rules = `table ${table} {\n${dropping('input', 'sport')}\n${dropping('output', 'dport')}\n}\n`
  const set = (text: string) => runIn(namespace, 'nft', ['-f', '-'], text)
  // `delete` alone would fail without the table.
  const pass = () => set(`add table ${table}\ndelete table ${table}\n`)
  return { silence: () => set(rules), pass, end: async () => void (await pass()) }
}

const links: Record<string, Link> = {
  'worker and Temporal': { open: () => by('worker', () => through('KEELSON_TEMPORAL_ADDRESS', temporal())) },
  'api and Temporal': { open: () => by('api', () => through('KEELSON_TEMPORAL_ADDRESS', temporal())) },
  'host and gateway': {
    open: () => by('host', () => through('KEELSON_GATEWAY_URL', layout.gatewayPort, 'http://')),
  },
  'host and internal API': { open: () => by('host', () => through('KEELSON_API_URL', api(), 'http://')) },
  'api and the data plane of the host': {
    open: () =>
      by('host', async () => {
        const proxy = await openSilentProxy({ host: elsewhere, port: layout.hostPort }, layout.hostPort)
        return { proxy, settings: { KEELSON_HOST_PLANE_ADDRESS: elsewhere } }
      }),
  },
  // A copy waits for its source for a minute.
  'host and host': { open: betweenHosts, sec: 75, verbs: ['move'] },
}

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
  const { state } = await operation.end()
  const found = async (): Promise<string> =>
    (await placesOf(String(body['id']))).map((place) => place.state).join()
  await eventually(async () => (await found()) === (state === 'succeeded' ? 'running' : ''))
}

const cases = stories.flatMap(({ verb, story }) =>
  Object.entries(links)
    .filter(([, { verbs }]) => verbs?.includes(verb) ?? true)
    .map(([between, link]) => ({ verb, story, between, link })),
)

describeHosts('with dropped packets in the middle,', () => {
  test.each(sampled(cases, 1))(
    '$verb takes effect once, or says why not: between $between',
    async ({ story, link: { open, sec = silentSec } }) => {
      const { silence, pass, end } = await open()
      try {
        const { id: witness } = await tenant.containers.make()
        await tenant.owner.get(`/api/v1/containers/${witness}/logs?lines=1`) // its connection is kept
        const created = await interrupted(story, async () => {
          await silence()
          const [answer] = await Promise.all([askMeanwhile(witness), delay(sec * 1000)])
          await pass()
          return answer
        })
        await expectCreated(created)
      } finally {
        await end()
      }
    },
  )
})
