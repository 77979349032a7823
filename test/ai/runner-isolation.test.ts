import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { createServer } from 'node:http'
import { type AddressInfo, createServer as createTcp } from 'node:net'
import { networkInterfaces, tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { makeLogger } from '../../lib/log.ts'
import { makeDoors } from '../../worker/host/doors.ts'
import { containerSpec, engine, removeTestContainers } from '../support/containers.ts'

// A runner that someone has taken over, in a container of the real engine: what it can reach, tried from inside.

const runner = newId()
const container = newId()
/** What a runner must not reach: it listens on every address of this machine, as a database might. */
const database = createTcp((socket) => socket.end('reached'))
const asked: string[] = []
const api = createServer((request, response) => {
  asked.push(request.url ?? '')
  response.end('answered')
})
const portOf = (server: { address(): unknown }): number => (server.address() as AddressInfo).port

let run: string
let doors: ReturnType<typeof makeDoors>
beforeAll(async () => {
  run = await mkdtemp(join(tmpdir(), 'doors-'))
  await once(api.listen(0, '127.0.0.1'), 'listening')
  await once(database.listen(0, '0.0.0.0'), 'listening')
  doors = makeDoors({
    run,
    outside: {
      gatewayUrl: 'http://127.0.0.1:9',
      gatewayAuthorities: () => null,
      apiUrl: `http://127.0.0.1:${portOf(api)}`,
      modelsUrl: 'http://127.0.0.1:1',
    },
    namespace: 'keelson',
    log: makeLogger('host', 'fatal'),
  })
  await start(container, runner)
})
afterAll(async () => {
  await removeTestContainers()
  await doors.close()
  api.close()
  database.close()
  await rm(run, { recursive: true })
})

/** Starts a container as its host starts a runner. */
const start = (id: string, its: string) =>
  doors.hold(id, its, ({ mount, vars }) => {
    const spec = containerSpec({
      id,
      runner: its,
      image: 'keelson/rag:1', // it has Node
      entrypoint: ['node', '-e', 'setInterval(() => {}, 1000)'],
      command: [],
      memory_mib: 96,
      mounts: [mount],
    })
    return engine.run(spec, vars, newId())
  })

/** What the body of an async function, run by Node in the container, returns. */
async function inRunner<T>(body: string, id = container): Promise<T> {
  const script = `(async () => { ${body} })().then((value) => console.log(JSON.stringify(value ?? null)))`
  return JSON.parse(await text(await engine.pipe(id, ['node', '-e', script]))) as T
}

/** Connects from inside. The code of the error, or `connected`. */
const connecting = `
  const { connect } = require('node:net')
  const to = (where) => new Promise((resolve) => {
    const socket = connect(where)
    socket.setTimeout(5000, () => { socket.destroy(); resolve('silence') })
    socket.on('connect', () => { socket.destroy(); resolve('connected') })
    socket.on('error', (error) => resolve(error.code))
  })`

/** Asks through the door. The status of the answer, or the code of the error. */
const asking = (path: string): string => `
  return new Promise((resolve) => require('node:http').get({ socketPath: '/run/keelson/door.sock', path: '${path}' },
    (answer) => { answer.resume(); resolve(answer.statusCode) }).on('error', (error) => resolve(error.code)))`

test('a runner has no interface but its own loopback, and no way to any address', async () => {
  const names = await inRunner<string[]>(`return Object.keys(require('node:os').networkInterfaces())`)
  expect(names.filter((name) => name !== 'lo')).toEqual([])

  const port = portOf(database)
  const ofMachine = Object.values(networkInterfaces())
    .flatMap((all) => all ?? [])
    .filter(({ family, internal }) => family === 'IPv4' && !internal)
    .map(({ address }) => ({ host: address, port }))
  expect(ofMachine.length).toBeGreaterThan(0)
  const targets = [
    { host: '127.0.0.1', port },
    ...ofMachine,
    { host: '169.254.169.254', port: 80 },
    { host: '1.1.1.1', port: 443 },
  ]
  const said = await inRunner<string[]>(
    `${connecting}; return Promise.all(${JSON.stringify(targets)}.map((one) => to(one)))`,
  )
  expect(said.filter((one) => !['ENETUNREACH', 'ECONNREFUSED', 'EHOSTUNREACH'].includes(one))).toEqual([])
  const looked = `return new Promise((resolve) => require('node:dns').lookup('example.org', (error) => resolve(error?.code)))`
  expect(await inRunner<string>(looked)).toMatch(/^(EAI_AGAIN|ENOTFOUND)$/)
})

test('a runner has the socket of its own door alone, and reaches its part of the API by it', async () => {
  const other = newId()
  await start(other, newId())
  const sockets = `
    const { readdirSync, statSync } = require('node:fs'); const { join } = require('node:path')
    const below = (folder, depth) => { try { return readdirSync(folder).flatMap((name) => {
      const path = join(folder, name)
      try { const found = statSync(path)
        return found.isSocket() ? [path] : found.isDirectory() && depth ? below(path, depth - 1) : []
      } catch { return [] }
    }) } catch { return [] } }
    return ['/run', '/var/run', '/tmp', '/data', '/home'].flatMap((folder) => below(folder, 4))`
  const found = new Set(await inRunner<string[]>(sockets))
  expect([...found].filter((path) => path.startsWith('/run/'))).toEqual(['/run/keelson/door.sock'])
  expect([...found].filter((path) => !/^(\/var)?\/run\/keelson\/door\.sock$/.test(path))).toEqual([])

  expect(await inRunner<number>(asking(`/internal/v1/runners/${runner}/spec`))).toBe(200)
  expect(await inRunner<number>(asking(`/internal/v1/runners/${other}/spec`))).toBe(404)
  expect(await inRunner<number>(asking('/api/v1/containers'))).toBe(404)
  expect(asked).toEqual([`/internal/v1/runners/${runner}/spec`])
})

test('a runner is nobody, without capabilities, and writes only to 16 MiB of memory', async () => {
  const status = await inRunner<string>(`return require('node:fs').readFileSync('/proc/self/status', 'utf8')`)
  expect(status).toMatch(/^Uid:\s+65534\s/m)
  for (const set of ['CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb'])
    expect(status).toMatch(new RegExp(`^${set}:\\s+0+$`, 'm'))
  expect(status).toMatch(/^NoNewPrivs:\s+1$/m)

  const writing = `
    const { writeFileSync, rmSync } = require('node:fs')
    return ${JSON.stringify(['/etc/x', '/x', '/run/keelson/x', '/tmp/x'])}.map((path) => {
      try { writeFileSync(path, 'x'); return 'written' } catch (error) { return error.code }
    })`
  const [etc, root, door, temporary] = await inRunner<string[]>(writing)
  for (const refused of [etc, root, door]) expect(refused).toMatch(/^(EROFS|EACCES)$/)
  expect(temporary).toBe('written')
  const filling = `
    try { require('node:fs').writeFileSync('/tmp/y', Buffer.alloc(32 * 1024 ** 2)); return 'written' }
    catch (error) { return error.code }`
  expect(await inRunner<string>(filling)).toBe('ENOSPC')
  // The door cannot be taken away, nor another put in its place.
  const replacing = `try { require('node:fs').unlinkSync('/run/keelson/door.sock'); return 'removed' } catch (error) { return error.code }`
  expect(await inRunner<string>(replacing)).toMatch(/^(EROFS|EACCES|EPERM)$/)
})

test('a runner goes on with its door when its host’s program starts again', async () => {
  await doors.close()
  await doors.keep([{ id: container, runner }])
  expect(await inRunner<number>(asking(`/internal/v1/runners/${runner}/again`))).toBe(200)
  expect((await engine.find(container))?.runner).toBe(runner)
})
