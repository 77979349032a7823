import { createHash } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals'
import { AuditEvent } from '../../models/identity/audit.ts'
import { isLong } from '../support/long.ts'
import { type ContainerBody, shell } from '../support/client.ts'
import {
  closeConsoles,
  type Console,
  type ConsoleOptions,
  openConsole,
  refusedConsole,
} from '../support/console.ts'
import { docker, engine } from '../support/engine.ts'
import { eventually } from '../support/eventually.ts'
import { makeMachine, replicas, tokenOf } from '../support/api-clients.ts'
import { platform, startAll } from '../support/platform.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// A terminal in a container, as its client sees it.

let tenant: TestTenant
let container: ContainerBody
beforeAll(async () => {
  tenant = await makeTenant()
  container = await tenant.containers.make({ cpu_cores: 1, memory_mib: 64 })
})
afterEach(startAll)
afterAll(closeConsoles)

const open = (options: ConsoleOptions = {}, id = container.id): Promise<Console> =>
  openConsole(id, { token: tenant.owner.token, ...options })
const refused = (options: ConsoleOptions = {}, id = container.id) =>
  refusedConsole(id, { token: tenant.owner.token, ...options })
const running = (...command: string[]) =>
  `?${new URLSearchParams(command.map((word): [string, string] => ['command', word])).toString()}`

/** How often the host's worker has ended by itself. */
const stops = (): number => platform.logs('host').split('"msg":"stopped"').length

const sha256 = (of: Buffer): string => createHash('sha256').update(of).digest('hex')

/** The commands that run in the container, according to the engine. */
async function processes(id = container.id): Promise<string[]> {
  const { Id } = await engine.only(id)
  const { Processes } = (await docker.getContainer(Id).top({ ps_args: '-eo pid,args' })) as {
    Processes: string[][]
  }
  return Processes.map(([, args = '']) => args)
}
/** Resolves when only the container's own command runs. */
const nothingLeft = (id = container.id): Promise<unknown> =>
  eventually(async () => {
    const left = (await processes(id)).filter((args) => !/sleep 3600|docker-init/.test(args))
    if (left.length) throw new Error(`left: ${left.join(', ')}`)
    return true
  })

describe('a terminal', () => {
  test('echoes, answers, and reports the exit code of the shell', async () => {
    const terminal = await open()
    terminal.type("echo 'one'' two'\n")
    await terminal.shows('one two')
    terminal.type('exit 7\n')
    expect(await terminal.closed).toEqual({ code: 1000, reason: 'exit code 7' })
  })

  test('has the requested size, and follows each resize', async () => {
    const terminal = await open({ query: '?cols=101&rows=31' })
    terminal.type('stty size\n')
    await terminal.shows('31 101')
    terminal.resize(140, 50)
    terminal.type('stty size\n')
    await terminal.shows('50 140')
    terminal.socket.close()
  })

  test('interrupts the running command at ctrl-C, and the shell continues', async () => {
    const terminal = await open()
    terminal.type('sleep 777\n')
    await eventually(async () => (await processes()).includes('sleep 777'))
    terminal.type('\x03')
    terminal.type('echo went $((1+1)) on\n')
    await terminal.shows('went 2 on')
    expect(await processes()).not.toContain('sleep 777')
    terminal.socket.close()
  })

  test('transfers UTF-8 characters that are split over frames', async () => {
    const terminal = await open({ query: running('cat') })
    for (const byte of Buffer.from('grüße, 世界 🌍\n')) terminal.type(Buffer.from([byte]))
    await terminal.shows(/grüße, 世界 🌍\r\ngrüße, 世界 🌍\r\n/)
    terminal.type('\x04')
    expect(await terminal.closed).toEqual({ code: 1000, reason: 'exit code 0' })
  })

  test('runs a full-screen program, and redraws it after a resize', async () => {
    const terminal = await open({ query: `${running('vi', '/tmp/poem')}&cols=80&rows=24` })
    await terminal.shows('\x1b[24;1H')
    terminal.type('iroses are red')
    await terminal.shows('roses are red')
    terminal.resize(100, 33)
    await terminal.shows('\x1b[32;1H~')
    terminal.type('\x1b')
    await terminal.shows('\x1b[33;1H\x1b[K- /tmp/poem') // the insert mode has ended
    terminal.type(':wq\r')
    expect(await terminal.closed).toEqual({ code: 1000, reason: 'exit code 0' })
    const written = await open({ query: running('cat', '/tmp/poem') })
    await written.shows('roses are red\r\n')
  })

  test('delivers all of 10 MB to a reader that pauses', async () => {
    const blocks = 160
    const make = 'seq 1 20000 | head -c 65536 >/tmp/block'
    const write = `stty -opost; i=0; while [ $i -lt ${blocks} ]; do cat /tmp/block; i=$((i+1)); done`
    const terminal = await open({ query: running('sh', '-c', `${make}; ${write}`) })
    for (let i = 0; i < 4; i++) {
      terminal.socket.pause()
      await delay(300)
      terminal.socket.resume()
      await delay(20)
    }
    expect(await terminal.closed).toEqual({ code: 1000, reason: 'exit code 0' })
    const text = Array.from({ length: 20_000 }, (_, i) => `${i + 1}\n`).join('')
    const block = Buffer.from(text).subarray(0, 65_536)
    expect(terminal.bytes.length).toBe(blocks * block.length)
    expect(sha256(terminal.bytes)).toBe(sha256(Buffer.concat(Array.from({ length: blocks }, () => block))))
  })

  test('blocks a command that writes without end while its reader does not read', async () => {
    const terminal = await open({ query: running('sh', '-c', 'stty -opost; yes | tee /tmp/written') })
    terminal.socket.pause()
    const size = async (): Promise<number> => {
      const other = await open({ query: running('sh', '-c', 'stat -c %s /tmp/written') })
      await other.closed
      return Number(other.text)
    }
    const settled = await eventually(async () => {
      const before = await size()
      await delay(500)
      return before > 0 && (await size()) === before && before
    })
    expect(settled).toBeLessThan(64 * 1024 * 1024)
    terminal.socket.terminate()
    await eventually(async () => !(await processes()).some((args) => args.includes('yes')))
  })

  test('stays open when it is idle', async () => {
    const terminal = await open()
    await terminal.shows('#')
    await delay(isLong ? 10 * 60_000 : 3_000)
    terminal.type('echo still $((40+2))\n')
    await terminal.shows('still 42')
    terminal.socket.close()
  }, 900_000)

  test('reports a command that does not exist', async () => {
    const terminal = await open({ query: running('/no/such') })
    const { code, reason } = await terminal.closed
    expect([code, reason]).toEqual([1000, expect.stringMatching(/^exit code 12[67]$/)])
    expect(terminal.text).toContain('no such file')
  })
})

describe('the container keeps no process', () => {
  test.each([
    ['closed', (terminal: Console) => terminal.socket.close()],
    ['gone without a word', (terminal: Console) => terminal.socket.terminate()],
  ])('when the client has %s', async (_, leave) => {
    const terminal = await open()
    terminal.type('sleep 888 & sleep 889\n')
    await eventually(async () => (await processes()).includes('sleep 889'))
    leave(terminal)
    await nothingLeft()
    expect(await processes()).toContain('sleep 3600')
  })

  test('when the client leaves before the console is open', async () => {
    const opening = Array.from({ length: 4 }, () => open().catch(() => null))
    await delay(5)
    closeConsoles()
    await Promise.all(opening)
    closeConsoles()
    await nothingLeft()
  })
})

describe('the close code is', () => {
  test('1000, with the exit code of a kill, when the container is stopped', async () => {
    const { id } = await tenant.containers.make()
    const terminal = await open({}, id)
    await terminal.shows('#')
    await (await tenant.containers.stop(id)).operation.success()
    expect(await terminal.closed).toEqual({ code: 1000, reason: 'exit code 137' })
  })

  test('1001 when the API stops', async () => {
    const terminal = await open({ api: replicas()[1] })
    await terminal.shows('#')
    await platform.stop('api-2')
    expect(await terminal.closed).toEqual({ code: 1001, reason: 'the platform is stopping' })
    await nothingLeft()
  })

  test('1001 when the host worker stops', async () => {
    const terminal = await open()
    await terminal.shows('#')
    await platform.stop('host')
    expect(await terminal.closed).toEqual({ code: 1001, reason: 'the host is stopping' })
    await nothingLeft()
  })

  test('1001 when the host worker stops, which waits for no shell of the tenant', async () => {
    const { id } = await tenant.containers.make()
    const terminal = await open({}, id)
    // What ends the command runs in the container, and never ends there.
    const endless = '#!/bin/busybox yes'
    terminal.type(`rm /bin/sh; echo '${endless}' >/bin/sh; chmod +x /bin/sh; echo now $((40+2)); sleep 999\n`)
    await terminal.shows('now 42')
    const before = stops()
    await platform.stop('host')
    expect(await terminal.closed).toEqual({ code: 1001, reason: 'the host is stopping' })
    expect(stops()).toBe(before + 1) // by itself, not by a kill
    await platform.start('host')
    await (await tenant.containers.delete(id)).operation.success()
  })

  test('1011 when the host worker is killed; a new console gets 503 while it is away', async () => {
    const { id } = await tenant.containers.make() // the killed worker cannot end what runs there
    const terminal = await open({}, id)
    await terminal.shows('#')
    await platform.kill('host')
    expect(await terminal.closed).toEqual({ code: 1011, reason: 'the host has gone' })
    expect(await refused({}, id)).toMatchObject({ status: 503, body: { code: 'unavailable' } })
  })

  test('1003 after a text frame that is not understood', async () => {
    const terminal = await open()
    terminal.socket.send('{"type": "resize", "cols": 0, "rows": 1}')
    expect(await terminal.closed).toMatchObject({ code: 1003 })
  })

  test('1008 when the session ends or the permission is revoked', async () => {
    const [one, other] = [await tenant.user('owner'), await tenant.user('owner')]
    const terminals = [await open({ token: one.token }), await open({ token: other.token })]
    expect(await one.ask('POST', '/api/v1/auth/logout')).toMatchObject({ status: 204 })
    const { id } = await other.get<{ id: string }>('/api/v1/account')
    await tenant.owner.ask('PATCH', `/api/v1/users/${id}`, { roles: ['viewer'] })
    expect(await Promise.all(terminals.map(({ closed }) => closed))).toEqual([
      { code: 1008, reason: 'the token has ended' },
      { code: 1008, reason: 'the permission was taken away' },
    ])
    await nothingLeft()
  })
})

describe('access to a console', () => {
  test('of another tenant’s container is answered with 404', async () => {
    const stranger = (await makeTenant()).owner
    expect(await refused({ token: stranger.token })).toMatchObject({
      status: 404,
      body: { code: 'not_found' },
    })
  })

  test('needs the permission', async () => {
    const viewer = await tenant.user('viewer')
    const answer = await refused({ token: viewer.token })
    expect(answer).toMatchObject({ status: 403, body: { permission: 'containers:console' } })
  })

  test('needs a valid token', async () => {
    expect(await refusedConsole(container.id, {})).toMatchObject({ status: 401 })
    expect(await refusedConsole(container.id, { protocols: ['bearer.nonsense'] })).toMatchObject({
      status: 401,
    })
  })

  test('is granted to an API client with the scope, and to none without', async () => {
    const machine = await makeMachine(tenant.owner, ['containers:read', 'containers:console'])
    const terminal = await open({ token: await tokenOf(machine), query: running('echo', 'from a machine') })
    await terminal.shows('from a machine')
    const less = await tokenOf(machine, 'containers:read')
    expect(await refused({ token: less })).toMatchObject({ status: 403 })
  })

  test('works from a browser by a subprotocol, and the token is in no log', async () => {
    const { token } = await tenant.user('owner')
    const terminal = await openConsole(container.id, { protocols: [`bearer.${token}`] })
    expect(terminal.socket.protocol).toBe(`bearer.${token}`)
    await terminal.shows('#')
    terminal.socket.close()
    for (const role of ['api', 'host'] as const) expect(platform.logs(role)).not.toContain(token)
  })

  test('is refused to a page of another origin', async () => {
    const answer = await refused({ headers: { origin: 'https://example.com' } })
    expect(answer).toMatchObject({ status: 403, body: { code: 'origin_denied' } })
    const own = await open({ headers: { origin: replicas()[0] }, query: running('true') })
    expect(await own.closed).toMatchObject({ code: 1000 })
  })

  test('is audited, granted or refused', async () => {
    const user = await tenant.user('owner')
    const viewer = await tenant.user('viewer')
    await (await open({ token: user.token, query: running('true') })).closed
    await refused({ token: viewer.token })
    const accounts = await Promise.all([user, viewer].map((of) => of.get<{ id: string }>('/api/v1/account')))
    const events = await Promise.all(
      accounts.map(({ id }) => AuditEvent.findOne({ tenant_id: tenant.id, actor_id: id }).lean()),
    )
    const action = 'GET /api/v1/containers/{id}/console'
    expect(events).toEqual([
      expect.objectContaining({ action, resource_id: container.id, status: 101, outcome: 'succeeded' }),
      expect.objectContaining({ action, resource_id: container.id, status: 403, outcome: 'refused' }),
    ])
  })
})

describe('the API refuses a console with', () => {
  test('426 if the request is no handshake', async () => {
    const path = `/api/v1/containers/${container.id}/console`
    const { status, headers, body } = await tenant.owner.ask('GET', path)
    expect([status, headers.get('upgrade'), body['code']]).toEqual([426, 'websocket', 'upgrade_required'])
  })

  test('the usual answer if the path is no WebSocket', async () => {
    const socket = `${replicas()[0]}/api/v1/containers/${container.id}`
    const { promise, resolve } = Promise.withResolvers<number>()
    const { request } = await import('node:http')
    const headers = {
      connection: 'Upgrade',
      upgrade: 'websocket',
      authorization: `Bearer ${tenant.owner.token}`,
    }
    const sent = request(socket, { headers }, (answer) => {
      answer.resume()
      resolve(answer.statusCode ?? 0)
    })
    sent.end()
    expect(await promise).toBe(200)
  })

  test('409 if the container does not run', async () => {
    const { id } = await tenant.containers.make({ start: false })
    expect(await refused({}, id)).toMatchObject({
      status: 409,
      body: { code: 'state_conflict', state: 'stopped' },
    })
  })

  test.each(['?cols=0', '?rows=many', '?width=1', '?command=%00', `?command=${'x'.repeat(9000)}`])(
    '400 for %s',
    async (query) => {
      expect(await refused({ query })).toMatchObject({ status: 400, body: { code: 'invalid_input' } })
    },
  )

  test('409 beyond ten at the same time, until one of them ends', async () => {
    const { id } = await tenant.containers.make(shell('sleep 3600', { memory_mib: 64 }))
    const terminals = await Promise.all(Array.from({ length: 10 }, () => open({}, id)))
    expect(await refused({}, id)).toMatchObject({ status: 409, body: { code: 'too_many_consoles' } })
    terminals[0]?.socket.close()
    await eventually(() => open({}, id))
  })
})

test('each replica opens consoles', async () => {
  for (const api of replicas()) {
    const terminal = await open({ api, query: running('echo', 'here') })
    await terminal.closed
    expect(terminal.text).toContain('here')
  }
})
