import { mkdtemp, rm } from 'node:fs/promises'
import { createServer, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from '@jest/globals'
import { Agent } from '../../../drivers/qemu/agent.ts'
import { type AgentLine, type CommandStatus, isBefore } from '../../../drivers/qemu/messages.ts'
import { eventually } from '../../support/eventually.ts'

// A tenant is root in the machine, and can send anything in the agent's place. None of it may harm the host worker.

const status: CommandStatus = {
  phase: 'running',
  exit_code: 0,
  oom_killed: false,
  restarts: 0,
  started_ns: 1,
}
const line = (seq: number): AgentLine => ({ seq, stream: 1, text: Buffer.from('a line').toString('base64') })

let folder: string
let server: Server
let guest: Socket
let agent: Agent
let heard: { lines: AgentLine[]; statuses: CommandStatus[] }
let peer: string

const say = (message: unknown): void => void guest.write(`${JSON.stringify(message)}\n`)
const hello = (over: object = {}) => ({
  verb: 'hello',
  body: { peer, sent_ns: 1, now_ns: 1, status, ...over },
})

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'keelson-agent-'))
  heard = { lines: [], statuses: [] }
  peer = ''
  const path = join(folder, 'agent.sock')
  server = createServer((socket) => {
    guest = socket
    socket.on('error', () => {})
    socket.on('data', (data: Buffer) => (peer ||= /"peer":"([^"]+)"/.exec(data.toString())?.[1] ?? ''))
  })
  await new Promise<void>((resolve) => server.listen(path, resolve))
  agent = await Agent.connect(path, {
    lastLine: () => heard.lines.at(-1)?.seq ?? 0,
    onLines(lines) {
      heard.lines.push(...lines)
      return heard.lines.at(-1)?.seq ?? 0
    },
    onStatus: (one) => void heard.statuses.push(one),
  })
  await eventually(() => peer !== '')
})

afterEach(async () => {
  agent.close()
  server.close()
  await rm(folder, { recursive: true })
})

test.each([
  ['no JSON', 'hello'],
  ['no message', 'null'],
  ['a verb that there is not', JSON.stringify({ verb: 'reboot-the-host' })],
  ['lines that are none', JSON.stringify({ verb: 'log' })],
  ['no lines', JSON.stringify({ verb: 'log', body: [] })],
  ['a line of another stream', JSON.stringify({ verb: 'log', body: [{ ...line(1), stream: 3 }] })],
  ['a number that is none', JSON.stringify({ verb: 'log', body: [{ ...line(1), seq: '1' }] })],
  ['text that is no text', JSON.stringify({ verb: 'log', body: [{ ...line(1), text: { length: 1 } }] })],
  [
    'a part beyond all parts',
    JSON.stringify({ verb: 'log', body: [{ ...line(1), text: 'A'.repeat(2 ** 17) }] }),
  ],
  [
    'a status that no host can report',
    JSON.stringify({ verb: 'status', body: { ...status, restarts: 1e300 } }),
  ],
  ['output of no session', JSON.stringify({ verb: 'out', body: 1 })],
  ['an end of no session', JSON.stringify({ verb: 'exit', session: 'x', body: 'now' })],
  ['a line longer than all that an agent says', 'x'.repeat(3 * 2 ** 20)],
])('the host ignores %s, and hears what follows', async (_, text) => {
  say(hello())
  await agent.ready(10_000)
  guest.write(`${text}\n`)
  say({ verb: 'log', body: [line(1)] })
  await eventually(() => heard.lines.length > 0)
  expect(heard).toEqual({ lines: [line(1)], statuses: [status] })
})

test('a flood is read slowly, and none of it is lost', async () => {
  say(hello())
  await agent.ready(10_000)
  const text = Buffer.alloc(16 * 1024, 'x').toString('base64')
  const count = 300 // of 22 KiB each
  for (let seq = 1; seq <= count; seq++) say({ verb: 'log', body: [{ ...line(seq), text }] })
  await eventually(() => heard.lines.length === count)
  expect(heard.lines.map(({ seq }) => seq)).toEqual(Array.from({ length: count }, (_, index) => index + 1))
})

test('a greeting with an invalid status is ignored', async () => {
  say(hello({ status: { ...status, phase: 'rich' } }))
  await expect(agent.ready(300)).rejects.toThrow('does not answer')
  say(hello())
  await agent.ready(10_000)
})

test('statuses have an order: the phases of a run, then the next run', () => {
  const inOrder: CommandStatus[] = [0, 1].flatMap((restarts) =>
    (['waiting', 'running', 'restarting', 'ended'] as const).map((phase) => ({ ...status, phase, restarts })),
  )
  for (const [at, one] of inOrder.entries())
    for (const [other, next] of inOrder.entries()) expect(isBefore(one, next)).toBe(at < other)
})
