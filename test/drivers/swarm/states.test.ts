import { randomBytes } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { buffer, text } from 'node:stream/consumers'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import type Docker from 'dockerode'
import { pack } from 'tar-stream'
import { engineOf } from '../../../drivers/swarm/dial.ts'
import { makeSwarmMembership } from '../../../drivers/swarm/membership.ts'
import { makeSwarmStates } from '../../../drivers/swarm/states.ts'
import type { SwarmStatePosition } from '../../../drivers/swarms.ts'
import { newId } from '../../../lib/ids.ts'
import { dialMachines } from '../../../worker/host/machine-engines.ts'
import { eventually } from '../../support/eventually.ts'
import { testLong } from '../../support/long-tests.ts'
import { containerSpec, machineEngine as engine, removeTestContainers } from '../../support/containers.ts'

// A manager whose machine is lost, and another machine that goes on in its place with a copy. Each test continues from the one
// before it.

const dial = dialMachines(engine)
const membership = makeSwarmMembership(dial)
const states = makeSwarmStates((id, command) => engine.pipe(id, command))
const address = '127.0.0.1' // each manager is alone
const startsWithinMs = 60_000

const folders: string[] = []
async function makeMachine(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'machine-'))
  folders.push(folder)
  const mounts = [{ host_path: folder, mount_path: '/var/lib/machine', read_only: false }]
  const rest = { command: [], memory_mib: 512, cpu_cores: 1, machine: true }
  const spec = containerSpec({ image: 'keelson/machine:1', ...rest, mounts })
  await engine.run(spec, {}, newId())
  await membership.awaitEngine(spec.id, startsWithinMs)
  return spec.id
}

const inner = (id: string): Docker => engineOf<Docker>(dial, id)
const addConfig = (id: string, name: string, bytes: Buffer): Promise<unknown> =>
  inner(id).createConfig({ Name: name, Data: bytes.toString('base64') })
const configsOf = async (id: string): Promise<string[]> =>
  (await inner(id).listConfigs()).map(({ Spec }) => Spec?.Name ?? '').toSorted()
const nodeOf = async (id: string): Promise<string> =>
  ((await inner(id).info()) as { Swarm: { NodeID: string } }).Swarm.NodeID
const inMachine = async (id: string, command: string): Promise<string> =>
  (await text(await engine.pipe(id, ['sh', '-c', `{ ${command}; } 2>&1`]))).trim()

/** What has been read so far. */
let copy: Buffer[] = []
let position: SwarmStatePosition | null = null
/** Reads what is new, and returns how many bytes in how many pieces. */
async function readOn(id: string): Promise<{ bytes: number; pieces: number }> {
  const [before, count] = [copy.length, { bytes: 0, pieces: 0 }]
  for (;;) {
    const read = await states.read(id, position)
    if (read === 'lost') throw new Error('the log has not only grown')
    if (read === null) break
    copy.push(...read.piece)
    count.pieces++
    position = read.to
    if (!read.more) break
  }
  return { ...count, bytes: copy.slice(before).reduce((sum, { length }) => sum + length, 0) }
}

let manager: string
beforeAll(async () => {
  manager = await makeMachine()
  await membership.form(manager, address)
})
afterAll(async () => {
  await removeTestContainers()
  for (const folder of folders) await rm(folder, { recursive: true })
})

const large = 400_000

test('reads all at first, and then what is new', async () => {
  expect(await states.read(manager, null)).toMatchObject({ more: false })
  await readOn(manager)
  await addConfig(manager, 'one', randomBytes(large))
  const { bytes, pieces } = await readOn(manager)
  expect(pieces).toBe(1)
  expect(bytes).toBeGreaterThan(large)
  expect(bytes).toBeLessThan(2 * large)
  while ((await readOn(manager)).pieces > 0) {} // what the Swarm has written by itself
  expect(await readOn(manager)).toEqual({ bytes: 0, pieces: 0 })
})

/** Has the Swarm write so many bytes to its log. */
async function fill(id: string): Promise<void> {
  const name = newId()
  await addConfig(id, name, randomBytes(large))
  await inner(id).getConfig(name).remove()
}

test('reads much that is new in pieces', async () => {
  for (let bytes = 0; bytes < 10 * 1024 ** 2; bytes += large) await fill(manager)
  await addConfig(manager, 'two', Buffer.from('two'))
  expect((await readOn(manager)).pieces).toBeGreaterThan(1)
})

testLong('reads a log that is full, and the one that follows on it', async () => {
  const logs = 'ls /var/lib/machine/docker/swarm/raft/wal-v3-encrypted | grep -c "[.]wal$"'
  while ((await inMachine(manager, logs)) === '1') await fill(manager)
  await addConfig(manager, 'three', Buffer.from('three'))
  expect((await readOn(manager)).pieces).toBeGreaterThan(5)
  await addConfig(manager, 'four', Buffer.from('four'))
  expect((await readOn(manager)).pieces).toBe(1)
})

test('tells if the log has not only grown', async () => {
  const at = position
  if (!at) throw new Error('nothing was read')
  await addConfig(manager, 'more', Buffer.from('more'))
  const other = { ...at, end: randomBytes(4096) }
  expect(await states.read(manager, { ...other, offset: at.offset + 4096 })).toBe('lost')
  expect(await states.read(manager, { ...at, log: '0000000000000009-0000000000000009.wal' })).toBe('lost')
  await readOn(manager)
})

test('another machine goes on in the place of the manager', async () => {
  const [node, configs] = [await nodeOf(manager), await configsOf(manager)]
  expect(configs).toEqual(expect.arrayContaining(['one', 'two', 'more']))
  await engine.remove(manager, { discard: true })
  manager = await makeMachine()
  expect(await membership.manages(manager)).toBe(false)
  await states.put(manager, newId(), Readable.from(copy))
  expect(await membership.awaitManager(manager, startsWithinMs)).toBe(true)
  expect(await nodeOf(manager)).toBe(node)
  expect(await configsOf(manager)).toEqual(configs)
  expect(await membership.form(manager, address)).toMatchObject({ node_id: node, machine_id: manager })
  await addConfig(manager, 'after', Buffer.from('after'))
})

test('a machine forms a Swarm after a copy that breaks off, and one with which its engine does not start', async () => {
  const other = await makeMachine()
  async function* cutOff(): AsyncGenerator<Buffer> {
    yield* copy
    throw new Error('the connection broke')
  }
  await expect(states.put(other, newId(), Readable.from(cutOff()))).rejects.toThrow('the connection broke')
  await eventually(async () => (await inMachine(other, 'pgrep -x tar || true')) === '')
  expect(await inMachine(other, 'ls /var/lib/machine')).not.toMatch(/^swarm-copy$/m)
  expect(await membership.manages(other)).toBe(false)
  const [certificates] = copy
  const files = pack()
  files.entry({ name: `log/0000000000000000-0000000000000000.wal/0` }, randomBytes(100_000))
  files.finalize()
  const damaged = Buffer.concat([certificates ?? Buffer.alloc(0), await buffer(files)])
  await states.put(other, newId(), Readable.from([damaged]))
  expect(await membership.awaitManager(other, 10_000)).toBe(false)
  await states.forget(other)
  await membership.awaitEngine(other, startsWithinMs)
  expect(await membership.form(other, address)).toMatchObject({ machine_id: other, role: 'manager' })
})
