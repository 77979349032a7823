import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { Duplex } from 'node:stream'
import { text } from 'node:stream/consumers'
import { afterEach, expect, test } from '@jest/globals'
import { probeStdio, stdioBounds } from '../../lib/mcp-stdio.ts'
import { type Fault, ProbeFailed, Stages } from '../../lib/probe-stages.ts'
import { makeRedactor } from '../../lib/redact.ts'

// Probes of servers that speak over their input and output, as programs of this machine.

const running: ChildProcess[] = []
afterEach(() => {
  for (const child of running.splice(0)) child.kill('SIGKILL')
})

async function probe(script: string, bounds: Partial<typeof stdioBounds> = {}, secrets: string[] = []) {
  const child = spawn(process.execPath, ['-e', script], { stdio: 'pipe' })
  running.push(child)
  child.stdin.on('error', () => {}) // it may have ended
  const said = text(child.stderr)
  // A short time is for the answers, not for the start of Node: wait until the script prints.
  if (bounds.withinMs !== undefined) await once(child.stdout, 'readable')
  const stream = Duplex.from({ readable: child.stdout, writable: child.stdin })
  stream.on('error', () => {})
  const stages = new Stages()
  const listing = await probeStdio({ stream, said: () => said, redact: makeRedactor(secrets) }, stages, {
    ...stdioBounds,
    ...bounds,
  })
  return { listing, spent: [stages.spent('initialize'), stages.spent('list')] }
}

const faultOf = async (...of: Parameters<typeof probe>): Promise<Fault> => {
  const error: unknown = await probe(...of).catch((failed: unknown) => failed)
  if (error instanceof ProbeFailed) return error.fault
  throw error
}

/** A server that answers a list with this expression of its `params`. */
const serving = (list: string, initialize = '{}'): string => `
const hello = { protocolVersion: '2025-06-18', capabilities: { tools: {} }, serverInfo: { name: 'fake', version: '1' } }
require('node:readline').createInterface(process.stdin).on('line', (line) => {
  const { id, method, params } = JSON.parse(line)
  const say = (answer) => console.log(JSON.stringify({ jsonrpc: '2.0', id, ...answer }))
  if (method === 'initialize') say({ result: { ...hello, ...${initialize} } })
  else if (method === 'tools/list') say(${list})
  else if (id !== undefined) say({ error: { code: -32601, message: 'none' } })
})
console.log('what is printed is no message')
`
const oneTool =
  "{ result: { tools: [{ name: 'a', description: process.env.PATH + ' secret-word', inputSchema: { type: 'object' } }] } }"

test('has the tools of a server, without its secrets', async () => {
  const { listing, spent } = await probe(serving(oneTool), {}, ['secret-word'])
  expect(listing).toMatchObject({
    transport: 'stdio',
    truncated: false,
    protocol_version: '2025-06-18',
    server: { name: 'fake', version: '1' },
    tools: [{ name: 'a', description: expect.stringMatching(/ \[secret\]$/) }],
  })
  expect(spent.every((ms) => ms > 0)).toBe(true)
})

test('says what a command wrote that ended, without its secrets', async () => {
  expect(
    await faultOf("console.error('no secret-word for you'); process.exitCode = 1", {}, ['secret-word']),
  ).toMatchObject({
    stage: 'initialize',
    reason: 'command_ended',
    cause: 'The command ended before it answered: no [secret] for you',
  })
  expect(await faultOf(serving('process.exit(1)'))).toMatchObject({ stage: 'list', reason: 'command_ended' })
})

test('ends, whatever the command does', async () => {
  const within = { withinMs: 3_000 }
  const silent = "console.log('no message'); setInterval(() => {}, 1000)"
  expect(await faultOf(silent, within)).toMatchObject({ stage: 'initialize', reason: 'no_answer' })
  expect(await faultOf(serving('undefined'), within)).toMatchObject({ stage: 'list' })
  const noise = "const noise = () => process.stdout.write('x'.repeat(65536), noise); noise()"
  expect(await faultOf(noise)).toMatchObject({ stage: 'initialize', reason: 'too_large' })
  const large =
    "{ result: { tools: [{ name: 'a', description: 'x'.repeat(2 ** 20), inputSchema: { type: 'object' } }] } }"
  expect(await faultOf(serving(large))).toMatchObject({ stage: 'list', reason: 'too_large' })
  const endless = "{ result: { tools: [], nextCursor: 'same' } }"
  expect(await faultOf(serving(endless))).toMatchObject({ stage: 'list', reason: 'endless_list' })
})

test('says that a server refuses, or speaks another version', async () => {
  expect(await faultOf(serving("{ error: { code: -32000, message: 'not today' } }"))).toMatchObject({
    stage: 'list',
    reason: 'refused_by_server',
    cause: 'The server answers with error -32000: not today',
  })
  expect(await faultOf(serving(oneTool, "{ protocolVersion: '1999-01-01' }"))).toMatchObject({
    stage: 'initialize',
    reason: 'unsupported_version',
  })
})
