import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import type { Connection } from '@temporalio/client'
import { defaultPayloadConverter, type Payload, type SerializationContext } from '@temporalio/common'
import { SignJWT } from 'jose'
import { openGateway, type Gateway } from '../../gateway/gateway.ts'
import { internalAudience } from '../../lib/host-protocol.ts'
import { newId } from '../../lib/ids.ts'
import { makeLogger } from '../../lib/log.ts'
import { gatewayToken } from '../../lib/party-tokens.ts'
import { platformCodec } from '../../lib/temporal.ts'
import { eventually } from '../support/eventually.ts'
import { CallingHost, eventsOf, giveTask, openTemporal, soon } from '../support/host-calls.ts'
import { layout, stackSettings } from '../support/stack.ts'

// A host reaches Temporal through the gateway alone. Each test is what a host can try that someone has taken over.

type Task = Awaited<ReturnType<Connection['workflowService']['pollActivityTaskQueue']>>
type Calls = Connection['workflowService']

const settings = stackSettings()
const namespace = settings.KEELSON_TEMPORAL_NAMESPACE
const platform = platformCodec(settings)
const log = makeLogger('gateway', 'fatal')
const local = {
  KEELSON_GATEWAY_HOST: '127.0.0.1',
  KEELSON_GATEWAY_PORT: 0,
  KEELSON_GATEWAY_PLAINTEXT: 'false' as const,
}

let temporal: Connection
let a: CallingHost
let b: CallingHost
let byA: Calls
let second: Gateway

beforeAll(async () => {
  temporal = openTemporal()
  ;[a, b] = [await CallingHost.enrol(), await CallingHost.enrol()]
  byA = await a.at(layout.gatewayPort)
  second = await openGateway({ ...settings, ...local }, log)
})
afterAll(async () => {
  await Promise.all([a.close(), b.close()])
  await second.close()
  await temporal.close()
})

const context = (workflowId: string): SerializationContext => ({ type: 'workflow', namespace, workflowId })
const plain = (value: unknown): Payload => defaultPayloadConverter.toPayload(value)
const sealedFor = (value: unknown) => (workflowId: string) =>
  platform.encode([plain(value)], context(workflowId))
const poll = (calls: Calls, queue: string): Promise<Task> =>
  calls.pollActivityTaskQueue({ namespace, taskQueue: { name: queue } })
const workflowOf = (task: Task): string => task.workflowExecution?.workflowId ?? ''
const inputOf = (task: Task): Payload[] => task.input?.payloads ?? []

/** A new task that the host has. */
async function taken(host: CallingHost, calls: Calls): Promise<Task> {
  await giveTask(temporal, host.queue, sealedFor('work'))
  return poll(calls, host.queue)
}

async function completed(workflowId: string): Promise<Payload[]> {
  return eventually(async () => {
    const events = await eventsOf(temporal, workflowId)
    const [done] = events.flatMap((event) => event.activityTaskCompletedEventAttributes ?? [])
    return done && (done.result?.payloads ?? [])
  })
}

test('a host gets its tasks sealed for it alone, and answers through any gateway', async () => {
  const workflowId = await giveTask(temporal, a.queue, sealedFor({ secret: 'input' }))
  const task = await poll(byA, a.queue)
  expect(workflowOf(task)).toBe(workflowId)
  const [input] = await a.codec.decode(inputOf(task), context(workflowId))
  expect(defaultPayloadConverter.fromPayload(input as Payload)).toEqual({ secret: 'input' })
  for (const other of [b.codec, platform])
    await expect(other.decode(inputOf(task), context(workflowId))).rejects.toThrow()

  const atSecond = await a.at(second.port)
  const { taskToken } = task
  const details = { payloads: await a.codec.encode([plain('half')], context(workflowId)) }
  await atSecond.recordActivityTaskHeartbeat({ namespace, taskToken, details })
  const result = { payloads: await a.codec.encode([plain('done')], context(workflowId)) }
  await atSecond.respondActivityTaskCompleted({ namespace, taskToken, result })
  const [kept] = await platform.decode(await completed(workflowId), context(workflowId))
  expect(defaultPayloadConverter.fromPayload(kept as Payload)).toBe('done')
})

describe('a host may not', () => {
  const refused: [string, () => Promise<unknown>][] = [
    ['poll another host’s queue', () => poll(byA, b.queue)],
    ['poll the platform’s queue', () => poll(byA, 'platform')],
    [
      'poll in another namespace',
      () => byA.pollActivityTaskQueue({ namespace: 'default', taskQueue: { name: a.queue } }),
    ],
    ['poll for workflows', () => byA.pollWorkflowTaskQueue({ namespace, taskQueue: { name: 'platform' } })],
    [
      'schedule an activity',
      () => byA.respondWorkflowTaskCompleted({ namespace, taskToken: new Uint8Array(8) }),
    ],
    [
      'start a workflow',
      () =>
        byA.startWorkflowExecution({
          namespace,
          workflowId: newId(),
          workflowType: { name: 'deleteContainer' },
          taskQueue: { name: 'platform' },
        }),
    ],
    ['list workflows', () => byA.listWorkflowExecutions({ namespace })],
    ['describe a queue', () => byA.describeTaskQueue({ namespace, taskQueue: { name: b.queue } })],
    [
      'complete an activity by its id',
      () => byA.respondActivityTaskCompletedById({ namespace, workflowId: newId(), activityId: '1' }),
    ],
  ]
  test.each(refused)('%s', async (_, call) => {
    await expect(call()).rejects.toMatchObject({ code: 7 })
  })

  test('answer for another host’s task, nor send a heartbeat for it', async () => {
    const { taskToken, ...task } = await taken(b, await b.at(layout.gatewayPort))
    const result = { payloads: await a.codec.encode([plain('lie')], context(workflowOf(task as Task))) }
    for (const call of [
      byA.respondActivityTaskCompleted({ namespace, taskToken, result }),
      byA.respondActivityTaskFailed({ namespace, taskToken, failure: { message: 'lie' } }),
      byA.respondActivityTaskCanceled({ namespace, taskToken }),
      byA.recordActivityTaskHeartbeat({ namespace, taskToken }),
    ])
      await expect(call).rejects.toMatchObject({ code: 7 })
  })

  test('use Temporal’s own token for a task', async () => {
    await giveTask(temporal, b.queue, sealedFor('work'))
    const { taskToken } = await soon(temporal, () => poll(temporal.workflowService, b.queue))
    await expect(byA.respondActivityTaskCompleted({ namespace, taskToken })).rejects.toMatchObject({
      code: 7,
    })
  })

  test('give a result that is not sealed, or is another workflow’s', async () => {
    const [first, other] = [await taken(a, byA), await taken(a, byA)]
    const { taskToken } = first
    for (const payloads of [[plain('open')], await a.codec.encode([plain(1)], context(workflowOf(other)))])
      await expect(
        byA.respondActivityTaskCompleted({ namespace, taskToken, result: { payloads } }),
      ).rejects.toMatchObject({ code: 3 })
    const failure = { message: 'x', encodedAttributes: plain('open') }
    await expect(byA.respondActivityTaskFailed({ namespace, taskToken, failure })).rejects.toMatchObject({
      code: 3,
    })
  })

  test('send more than Temporal takes, or poll without end', async () => {
    const { taskToken } = await taken(a, byA)
    const result = { payloads: [{ data: Buffer.alloc(5 * 1024 * 1024) }] }
    await expect(byA.respondActivityTaskCompleted({ namespace, taskToken, result })).rejects.toMatchObject({
      code: 8,
    })
    const idle = await CallingHost.enrol()
    const calls = await idle.at(second.port)
    const polls = Array.from({ length: 41 }, () => poll(calls, idle.queue))
    await expect(
      Promise.any(
        polls.map((one) =>
          one.then(
            () => 0,
            ({ code }) => code,
          ),
        ),
      ),
    ).resolves.toBe(8)
    await idle.close() // the other polls end with the gateway
  })
})

const sign = (over: { aud?: string; iat?: number; typ?: string }) =>
  new SignJWT({ iss: a.id, sub: a.id, aud: over.aud ?? 'keelson-gateway' })
    .setProtectedHeader({ alg: 'EdDSA', typ: over.typ ?? 'host+jwt' })
    .setIssuedAt(over.iat ?? Math.floor(Date.now() / 1000))
    .setExpirationTime('1 h')
    .sign(a.key)

describe('the gateway refuses a token', () => {
  const tokens: [string, () => Promise<string>][] = [
    ['that is none', async () => 'x'],
    ['for the internal API', () => sign({ aud: internalAudience })],
    ['that is too old', () => sign({ iat: Math.floor(Date.now() / 1000) - 400 })],
    ['of another kind of party', () => sign({ typ: 'runner+jwt' })],
    ['that another host signed', () => gatewayToken({ party: a.party, key: b.key })],
    ['of a host that is not there', () => gatewayToken({ party: { kind: 'host', id: newId() }, key: a.key })],
  ]
  test.each(tokens)('%s', async (_, token) => {
    const calls = await a.at(layout.gatewayPort, await token())
    await expect(calls.getSystemInfo({})).rejects.toMatchObject({ code: 16 })
  })

  test('of a host that was removed, at its next poll', async () => {
    const removed = await CallingHost.enrol()
    const calls = await removed.at(layout.gatewayPort)
    await expect(calls.getSystemInfo({})).resolves.toBeDefined()
    await removed.remove()
    const again = await removed.at(layout.gatewayPort)
    await expect(poll(again, removed.queue)).rejects.toMatchObject({ code: 16 })
    await expect(again.getSystemInfo({})).rejects.toMatchObject({ code: 16 })
    await removed.close()
  })
})

test('a task that the platform did not seal, or sealed for another workflow, reaches no host', async () => {
  for (const forged of [async () => [plain({ id: newId() })], () => sealedFor('work')('another')]) {
    const workflowId = await giveTask(temporal, a.queue, forged)
    expect(inputOf(await poll(byA, a.queue))).toEqual([])
    const [failed] = await eventually(async () => {
      const events = await eventsOf(temporal, workflowId)
      const all = events.flatMap((event) => event.activityTaskFailedEventAttributes ?? [])
      return all.length > 0 && all
    })
    expect(failed?.failure?.applicationFailureInfo).toMatchObject({
      type: 'payload_refused',
      nonRetryable: true,
    })
  }
})

test('the gateway does not listen to other machines without TLS', async () => {
  const open = { ...settings, ...local, KEELSON_GATEWAY_HOST: '0.0.0.0' }
  await expect(openGateway(open, log)).rejects.toThrow('KEELSON_GATEWAY_TLS_CERT_FILE')
})
