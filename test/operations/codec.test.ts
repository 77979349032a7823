import { Client as Temporal, Connection, type WorkflowHandle } from '@temporalio/client'
import proto from '@temporalio/proto'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { ask, type Client, type Json, type OperationBody } from '../support/client.ts'
import { stackSettings } from '../support/stack.ts'
import { makeOperator, makeTenant, type TestTenant } from '../support/tenants.ts'

// Only operators can read what Temporal stores.

const { Payload, Payloads } = proto.temporal.api.common.v1
const secret = 'codec-plain-secret'
const plain = {
  name: 'codec-plain-name',
  image: 'busybox:latest',
  command: ['sh', '-c', 'sleep 3600 # codec-plain-command'],
}

let connection: Connection
let tenant: TestTenant
let operator: Client
let operation: OperationBody
let handle: WorkflowHandle
let history: proto.temporal.api.history.v1.IHistory

beforeAll(async () => {
  ;[tenant, operator] = [await makeTenant(), await makeOperator()]
  const accepted = await tenant.containers.create({ ...plain, config_vars: { SECRET: secret } })
  operation = await accepted.operation.success()
  const settings = stackSettings()
  connection = await Connection.connect({ address: settings.KEELSON_TEMPORAL_ADDRESS })
  const temporal = new Temporal({ connection, namespace: settings.KEELSON_TEMPORAL_NAMESPACE })
  handle = temporal.workflow.getHandle(operation.workflow_id)
  history = await handle.fetchHistory()
})
afterAll(() => connection.close())

/** All payloads in a history, at any depth. */
function payloadsOf(value: unknown): proto.temporal.api.common.v1.IPayload[] {
  if (typeof value !== 'object' || value === null || value instanceof Uint8Array) return []
  if ('metadata' in value && 'data' in value) return [value as proto.temporal.api.common.v1.IPayload]
  return Object.values(value).flatMap(payloadsOf)
}
const asJson = (payloads: proto.temporal.api.common.v1.IPayload[]): Json =>
  Payloads.toObject(Payloads.create({ payloads }), { bytes: String })
const decode = (token: string | undefined, body: Json) => ask('POST', '/codec/decode', { token, body })

test('a history holds no name, image, command or secret of the tenant', async () => {
  const bytes = Buffer.from(proto.temporal.api.history.v1.History.encode(history).finish()).toString('latin1')
  for (const text of [plain.name, plain.image, plain.command[2] ?? '', secret])
    expect(bytes).not.toContain(text)
  const encodings = payloadsOf(history).map(({ metadata }) =>
    Buffer.from(metadata?.['encoding'] ?? []).toString(),
  )
  expect(encodings).toContain('binary/encrypted')
})

test('what Temporal stores in plain text beside the history is ids and the kind of work', async () => {
  const { typedSearchAttributes, memo = {}, type, raw } = await handle.describe()
  const shown = typedSearchAttributes
    .getAll()
    .filter(({ key }) => key.name.startsWith('Keelson'))
    .map(({ key, value }) => [key.name, value])
  expect(Object.fromEntries(shown)).toEqual({
    KeelsonTenant: tenant.id,
    KeelsonResource: operation.resource_id,
    KeelsonKind: 'container.create',
  })
  expect(memo).toEqual({})
  expect(type).toBe('createContainer')
  const bytes = Buffer.from(
    proto.temporal.api.workflowservice.v1.DescribeWorkflowExecutionResponse.encode(raw).finish(),
  ).toString('latin1')
  for (const text of [plain.name, plain.image, plain.command[2] ?? '', secret])
    expect(bytes).not.toContain(text)
})

test('an operator’s token decodes a history', async () => {
  const { status, body } = await decode(operator.token, asJson(payloadsOf(history)))
  expect(status).toBe(200)
  const texts = (body['payloads'] as { data?: string }[]).map(({ data }) =>
    Buffer.from(data ?? '', 'base64').toString(),
  )
  expect(texts).toContain(JSON.stringify(operation.id))
  expect(texts.join('\n')).toContain(plain.image)
  expect(texts.join('\n')).toMatch(
    new RegExp(`"Run container ${operation.resource_id} on host [0-9a-f-]{36}"`),
  )
  expect(texts.join('\n')).not.toContain(secret)
})

test('no other token decodes a history', async () => {
  const body = asJson(payloadsOf(history))
  const refusals = [
    { token: undefined, status: 401 },
    { token: 'kls_unknown', status: 401 },
    { token: tenant.owner.token, status: 403 },
    { token: (await tenant.user('viewer')).token, status: 403 },
  ]
  for (const { token, status } of refusals) {
    const answer = await decode(token, body)
    expect(answer).toMatchObject({ status, body: { status } })
    expect(JSON.stringify(answer.body)).not.toContain('payloads')
  }
})

test('a payload that was changed on the way does not decode', async () => {
  const [payload] = payloadsOf(history).filter(({ data }) => data && data.length > 40)
  const data = Uint8Array.from(payload?.data ?? [])
  data[data.length - 1] = (data.at(-1) ?? 0) ^ 1
  const answer = await decode(operator.token, asJson([Payload.create({ ...payload, data })]))
  expect(answer.status).toBeGreaterThanOrEqual(400)
})
