import { readFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { afterEach, beforeEach, expect } from '@jest/globals'
import type Docker from 'dockerode'
import { newId } from '../../lib/ids.ts'
import { ownerFile } from '../../script/lib/secrets.ts'
import { asRoot } from '../support/as-root.ts'
import { type Answer, ask, type Json, type Operation, shell, sleeper } from '../support/client.ts'
import { ClientAt } from '../support/client-at.ts'
import { testLong } from '../support/long-tests.ts'
import { atEndOfFile } from '../support/end-of-file.ts'
import { eventually } from '../support/eventually.ts'
import '../support/exclusive.ts'
import { runInside } from '../support/inside.ts'
import { type OwnServer, ownServer } from '../support/own-server.ts'
import { parentless } from '../support/parentless.ts'
import { makeSmallDisk, type SmallDisk } from '../support/small-disk.ts'
import { dockerOf, fullDiskServer } from '../support/stack.ts'

// A server whose state folder is on a file system of its own, which fills while clients create things and a container writes
// output. It takes minutes, most of them until MongoDB has ended.

const gib = 1024 ** 3
const mib = 1024 ** 2
const containers = '/api/v1/containers'
const apiClients = '/api/v1/api-clients'

let folder: string
let disk: SmallDisk
let server: OwnServer
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'keelson-server-'))
  disk = await makeSmallDisk(folder, 6 * gib)
  // The store of output takes what is free beyond this.
  server = ownServer(join(disk.path, 'state'), fullDiskServer.port, { KEELSON_STORE_FREE_GIB: '0.5' })
  await server.script('--detach')
})
afterEach(async () => {
  await disk.clear()
  await server.script('destroy', '--yes')
  await disk.remove()
  await rm(folder, { recursive: true })
})

/** What a client was told. */
interface Told {
  /** The creates that were accepted, and the deletion of each, if it was. */
  created: { id: string; create: Operation; delete?: Operation }[]
  /** The ids of records whose creation was acknowledged. */
  records: string[]
  refusals: Answer[]
}

/** Creates and deletes containers, and creates records, until the signal. */
async function work(client: ClientAt, told: Told, signal: AbortSignal): Promise<void> {
  const send = async (method: string, path: string, body?: Json): Promise<Answer | null> => {
    const answer = await client.ask(method, path, body).catch(() => null) // the API is away
    if (answer && answer.status >= 400) told.refusals.push(answer)
    return answer
  }
  while (!signal.aborted) {
    const left = told.created.filter((one) => !one.delete)
    if (left.length < 6) {
      const made = await send('POST', containers, sleeper())
      if (made?.status === 202)
        told.created.push({ id: String(made.body['id']), create: client.operationOf(made) })
    } else {
      const one = left[0] as Told['created'][number]
      const gone = await send('DELETE', `${containers}/${one.id}`)
      if (gone?.status === 202) one.delete = client.operationOf(gone)
    }
    const record = { name: newId(), scopes: ['containers:read'], description: 'x'.repeat(1000) }
    const kept = await send('POST', apiClients, record)
    if (kept?.status === 201) told.records.push(String(kept.body['id']))
    await delay(50)
  }
}

/** Writes numbered lines, and counts them where it has room. As many as fill a file of the engine in seconds. */
const writer = shell(
  'i=0; while :; do i=$((i + 1)); echo "$i 0123456789012345678901234567890123456789"; echo $i > /dev/shm/count; [ $((i % 100)) != 0 ] || sleep 0.1; done',
  { log_cap_mib: 1 },
)

/** Appends numbers to a file on its disk, with noise that takes space, and keeps those that were synced in its memory. */
const syncer = (disk_id: string) =>
  shell(
    'i=0; while :; do i=$((i + 1)); head -c 32768 /dev/urandom >> /data/noise; echo $i >> /data/file && sync /data/file && echo $i >> /dev/shm/synced; sleep 0.1; done',
    { disks: [{ disk_id, mount_path: '/data' }] },
  )

/** A file in a container's memory, from outside: the engine may not answer. */
const inMemory = (pid: number, name: string): string =>
  readFileSync(`/proc/${pid}/root/dev/shm/${name}`, 'utf8')

interface Output {
  numbers: number[]
  marks: string[]
}

async function outputOf(client: ClientAt, id: string): Promise<Output> {
  const { status, body } = await client.ask('GET', `${containers}/${id}/logs/archive`)
  if (status !== 200) throw new Error(`${status} ${JSON.stringify(body)}`)
  const lines = String(body['text']).split('\n').filter(Boolean)
  return {
    numbers: lines.filter((line) => /^\d/.test(line)).map((line) => Number.parseInt(line, 10)),
    marks: lines.filter((line) => line.startsWith('[keelson: ')),
  }
}

const onEngine = async (engine: Docker, id: string): Promise<string[]> => {
  const filters = { label: [`keelson.resource=${id}`] }
  return (await engine.listContainers({ all: true, filters })).map(({ State }) => State)
}

const pidOn = async (engine: Docker, id: string): Promise<number> =>
  (await engine.getContainer(`keelson-${id}`).inspect()).State.Pid

/** What is there is what the operations say. */
async function expectTruth(client: ClientAt, engine: Docker, told: Told): Promise<Record<string, number>> {
  const ends: Record<string, number> = {}
  for (const { id, create, delete: deletion } of told.created) {
    const states = [await create.end(), ...(deletion ? [await deletion.end()] : [])].map(
      ({ verb, state, error }) => ({ verb, state, code: error?.code }),
    )
    for (const { verb, state, code } of states) {
      const end = [verb, state, code].filter(Boolean).join(' ')
      ends[end] = (ends[end] ?? 0) + 1
    }
    const last = states.at(-1)
    const { status, body } = await client.ask('GET', `${containers}/${id}`)
    const isThere = last?.verb === 'create' ? last.state === 'succeeded' : last?.state !== 'succeeded'
    if (last?.verb === 'delete') expect([states, status]).toEqual([states, isThere ? 200 : 404])
    else if (isThere) expect([id, status, body['status']]).toEqual([id, 200, 'running'])
    const places = isThere && body['status'] === 'running' ? ['running'] : []
    await eventually(async () => (await onEngine(engine, id)).join() === places.join())
  }
  return ends
}

async function allRun(): Promise<boolean> {
  const down = (await server.roles()).filter(({ state }) => state !== 'running')
  if (down.length > 0) throw new Error(`not running: ${JSON.stringify(down)}`)
  return true
}

asRoot('a server whose disk was full', () => {
  testLong(
    'runs all its roles again, has all that it acknowledged, and tells of the output that is lost',
    async () => {
      const { api_url, docker_host } = server.facts()
      const engine = dockerOf(docker_host)
      const login = JSON.parse(readFileSync(ownerFile(server.layout), 'utf8')) as Json
      const { body } = await ask('POST', `${api_url}/api/v1/auth/login`, { body: login })
      const clients = [1, 2].map(() => new ClientAt(api_url, String(body['token'])))
      const [client] = clients as [ClientAt]
      const { id } = await client.containers.make(writer)
      const pid = await pidOn(engine, id)
      const { id: diskId } = await client.disks.make()
      const { id: syncing } = await client.containers.make(syncer(diskId))
      const pidOfSyncer = await pidOn(engine, syncing)
      const synced = (): string[] => inMemory(pidOfSyncer, 'synced').trimEnd().split('\n')
      const written = (): number => Number(inMemory(pid, 'count'))

      const stopped = new AbortController()
      atEndOfFile(() => stopped.abort())
      const all = clients.map((): Told => ({ created: [], records: [], refusals: [] }))
      const working = clients.map((one, i) => work(one, all[i] as Told, stopped.signal))
      const since = all.map(() => 0)
      const refused = (code: string): Promise<boolean[]> =>
        Promise.all(
          all.map(({ refusals }, i) =>
            eventually(() => refusals.slice(since[i]).some((one) => one.body['code'] === code)),
          ),
        )
      await eventually(() => all.every(({ created }) => created.some((one) => one.delete)))

      // Nearly full: the server says so, and takes no new work.
      await disk.fill(100 * mib)
      await eventually(() => /the disk of .* is 9\d % full/.test(server.log()))
      await refused('store_full')

      // Full, until output is lost and MongoDB has ended.
      const restarts = async (name: string): Promise<number> =>
        (await server.roles()).find((role) => role.name === name)?.restarts ?? 0
      for (const [i, { refusals }] of all.entries()) since[i] = refusals.length
      await disk.keepFull()
      const fullAt = written()
      const lost = 2_000
      await eventually(() => written() > fullAt + lost)
      await eventually(async () => (await restarts('mongodb')) > 0)
      await refused('unavailable')
      console.log(
        `restarts: ${JSON.stringify((await server.roles()).map(({ name, restarts: n }) => [name, n]))}`,
      )
      await disk.clear()
      console.log(`${written() - fullAt} lines while it was full`)

      // There is room again.
      await eventually(allRun)
      stopped.abort()
      await Promise.all(working)
      await eventually(async () => (await client.ask('GET', containers)).status === 200)
      // What the deletions leave is free once they have ended.
      for (const one of all) console.log(JSON.stringify(await expectTruth(client, engine, one)))
      const made = await eventually(async () => {
        const answer = await client.ask('POST', containers, sleeper())
        return answer.status === 202 && answer
      })
      await client.operationOf(made).success()
      for (const { records } of all)
        for (const record of records)
          expect([record, (await client.ask('GET', `${apiClients}/${record}`)).status]).toEqual([record, 200])

      // What was synced is there, and the disk has told that its writes failed.
      const before = synced().length
      await eventually(() => synced().length > before)
      const acknowledged = synced()
      const kept = new Set((await runInside(engine, `keelson-${syncing}`, 'cat /data/file')).split('\n'))
      expect(acknowledged.filter((number) => !kept.has(number))).toEqual([])
      console.log(`${acknowledged.length} numbers were synced`)
      const told = async () => (await client.containers.activity(syncing)).map(({ kind }) => kind)
      await eventually(async () => (await told()).includes('disk_sound'))
      expect(await told()).toContain('disk_failing')
      expect(await client.disks.get(diskId)).toMatchObject({ condition: 'sound', status_reason: null })

      // Lost output is marked, and told.
      await eventually(async () =>
        (await client.containers.activity(id)).some(({ kind }) => kind === 'output_dropped'),
      )
      await (await client.containers.stop(id)).operation.success()
      const { numbers, marks } = await outputOf(client, id)
      const gaps = numbers.filter((number, i) => i > 0 && number !== (numbers[i - 1] ?? 0) + 1).length
      console.log(`${gaps} gaps, marks: ${marks.join(' ')}`)
      expect(numbers).toEqual(numbers.toSorted((a, b) => a - b))
      expect(numbers.at(-1)).toBeGreaterThan(fullAt + lost)
      expect(gaps).toBeGreaterThan(0)
      expect(marks.length).toBeGreaterThanOrEqual(gaps)

      expect(await allRun()).toBe(true)
      const left = await parentless(server.layout.state, server.facts().pid, engine)
      // Its daemon serves a disk also while the host's program is down.
      expect(left.map((process) => (process.includes(`/${diskId}/`) ? 'daemon' : process))).toEqual([
        'daemon',
      ])
    },
  )
})
