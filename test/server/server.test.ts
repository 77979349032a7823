import { execFile } from 'node:child_process'
import { existsSync, readFileSync, statSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { bridgeOf, hasOwnEngine } from '../../script/lib/engine.ts'
import { testDrawn } from '../support/drawn.ts'
import { eventually } from '../support/eventually.ts'
import { type OwnServer, ownServer } from '../support/own-server.ts'
import { layout as shared } from '../support/stack.ts'

// These tests start their own server beside the shared one, which also shows that two run on one machine. Its folder is
// deep, as a clone's may be: the paths of sockets must still fit.

const run = promisify(execFile)
const portBase = shared.apiPort + 4_000 // clear of the ports of the shared servers
let folder: string
let state: string

let own: OwnServer
const server = (...args: string[]) => own.script(...args)
const facts = () => own.facts()
const roles = () => own.roles()
const pidOf = async (name: string) => (await roles()).find((role) => role.name === name)?.pid ?? 0
const isAlive = (pid: number) => existsSync(`/proc/${pid}`)

const docker = async (...args: string[]) => {
  const { stdout } = await run('docker', args, { env: { ...process.env, DOCKER_HOST: facts().docker_host } })
  return stdout.trim()
}
const pidInside = async (container: string) =>
  Number(await docker('inspect', '-f', '{{.State.Pid}}', container))

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'keelson-server-'))
  state = join(folder, 'a-folder-with-a-long-name'.repeat(4), 'state')
  own = ownServer(state, portBase)
  await server('--detach')
})
afterAll(async () => {
  await server('destroy', '--yes')
  await rm(folder, { recursive: true })
})

test('a role that crashes is restarted, and the server says so', async () => {
  const crashed = await pidOf('worker')
  process.kill(crashed, 'SIGKILL')
  const worker = await eventually(async () =>
    (await roles()).find(
      ({ name, state: now, pid }) => name === 'worker' && now === 'running' && pid !== crashed,
    ),
  )
  expect(worker.restarts).toBe(1)
  expect(readFileSync(join(state, 'log/server.log'), 'utf8')).toContain('worker ended by itself (SIGKILL)')
})

testDrawn('a role that was killed on request stays down until it is started', async () => {
  await server('kill', 'api')
  await expect(fetch(`${facts().api_url}/healthz`)).rejects.toThrow()
  await server('start', 'api')
  expect((await fetch(`${facts().api_url}/healthz`)).status).toBe(200)
})

test('the server’s keys are readable by this user alone', () => {
  for (const file of ['master.key', 'codec.key', 'mongodb.keyfile', 'mongodb.json'])
    expect([file, statSync(join(state, file)).mode & 0o777]).toEqual([file, 0o600])
})

test('the host role gets neither the address of MongoDB or Temporal nor a key of the platform', async () => {
  const environment = readFileSync(`/proc/${await pidOf('host')}/environ`, 'utf8')
  expect(environment).toContain('KEELSON_DOCKER_HOST=')
  expect(environment).not.toMatch(/MONGODB|TEMPORAL_(ADDRESS|TLS|API)|MASTER_KEY|CODEC_KEY/)
})

test('a second server on the same state folder is refused, and the first keeps running', async () => {
  await expect(server('--detach')).rejects.toThrow('runs on')
  expect((await fetch(`${facts().api_url}/healthz`)).status).toBe(200)
})

testDrawn('containers keep running while the server is stopped, and the next start finds them', async () => {
  const container = await docker('run', '--detach', 'keelson/hello:1')
  const pid = await pidInside(container)
  await server('stop')
  expect(isAlive(pid)).toBe(true)
  await server('--detach')
  expect(await pidInside(container)).toBe(pid)
})

testDrawn('a start after a kill -9 of the server ends what that left, and keeps the containers', async () => {
  const container = await docker('run', '--detach', 'keelson/hello:1')
  const pid = await pidInside(container)
  const left = (await roles()).map((role) => role.pid ?? 0)
  process.kill(facts().pid, 'SIGKILL')
  await server('--detach')
  expect(left.filter(isAlive)).toEqual([])
  expect(await pidInside(container)).toBe(pid)
})

test('destroy leaves no process, bridge, rule, mount or data', async () => {
  const pids = (await roles()).map((role) => role.pid ?? 0)
  const ownEngine = hasOwnEngine(own.layout)
  await server('destroy', '--yes')
  expect(pids.filter(isAlive)).toEqual([])
  expect(readFileSync('/proc/mounts', 'utf8')).not.toContain(folder)
  expect(existsSync(join(state, 'mongodb'))).toBe(false)
  if (ownEngine) {
    const { stdout: links } = await run('ip', ['-o', 'link'])
    const { stdout: rules } = await run('iptables-save')
    expect(links + rules).not.toContain(bridgeOf(own.layout))
  }
})
