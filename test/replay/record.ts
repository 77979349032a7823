// Records the histories that test/operations/replay.unit.test.ts replays: `node test/replay/record.ts [STORY...]`, all
// anew or those named, on the tests' stack (`script/test --keep` leaves it up). For a workflow that is new. A change to an old one must
// replay what was recorded before it: that is what `patched` is for.
import { mkdir, rm, writeFile } from 'node:fs/promises'
import type { Payload } from '@temporalio/common'
import { historyToJSON } from '@temporalio/common/lib/proto-utils.js'
import type proto from '@temporalio/proto'
import { dataConverter, temporalClient } from '../../lib/temporal.ts'
import { containerResource } from '../../models/compute/containers.ts'
import { connectDatabase, disconnectDatabase } from '../../models/database.ts'
import '../../models/index.ts'
import { acceptVerb } from '../../models/operations.ts'
import { Operation, shell } from '../support/client.ts'
import { eventually } from '../support/eventually.ts'
import { platform } from '../support/platform.ts'
import { stackSettings } from '../support/stack.ts'
import { makeOperator, makeTenant, removeTenants } from '../support/tenants.ts'

type History = proto.temporal.api.history.v1.History
const folder = new URL('histories/', import.meta.url)

const settings = stackSettings()
await connectDatabase(settings)
const tenant = await makeTenant()
const { containers } = tenant

/** Each story's operation; its history is kept under the story's name. */
const stories: Record<string, () => Promise<Operation>> = {
  'createContainer.running': async () => (await containers.create()).operation,
  'createContainer.stopped': async () => (await containers.create({ start: false })).operation,
  'createContainer.failed': async () => (await containers.create({ command: ['false'] })).operation,
  'createContainer.cancelled': async () => {
    const { operation } = await whileHostIsAway(() => containers.create())
    await operation.cancel()
    await platform.start('host')
    return operation
  },
  'startContainer.running': async () => {
    const { id } = await containers.make({ start: false })
    return (await containers.start(id)).operation
  },
  'startContainer.failed': async () => {
    const { id } = await containers.make(shell('test ! -e /ran || exit 9; touch /ran; sleep 3600'))
    await (await containers.stop(id)).operation.success()
    return (await containers.start(id)).operation
  },
  'stopContainer.stopped': async () => (await containers.stop((await containers.make()).id)).operation,
  'updateContainer.running': async () => {
    const { id } = await containers.make()
    return (await containers.update(id, { memory_mib: 32, command: ['sleep', '7200'] })).operation
  },
  'updateContainer.stopped': async () => {
    const { id } = await containers.make({ start: false })
    return (await containers.update(id, { memory_mib: 32 })).operation
  },
  'repairContainer.running': async () => {
    const { id } = await containers.make()
    const request = {
      resource: containerResource,
      tenantId: tenant.id,
      requestedBy: null,
      id,
      verb: 'repair',
    }
    const { operation } = await acceptVerb(request)
    return new Operation(tenant.owner, `/api/v1/operations/${operation._id}`)
  },
  'deleteContainer.deleted': async () => (await containers.delete((await containers.make()).id)).operation,
  'deleteContainer.superseding': async () => {
    const { id } = await whileHostIsAway(() => containers.create())
    const { operation } = await containers.delete(id)
    await platform.start('host')
    return operation
  },
  'deleteTenant.deleted': async () => {
    const { id, containers: its } = await makeTenant()
    await its.make({ start: false })
    const operator = await makeOperator()
    return (await operator.begin('DELETE', `/api/v1/platform/tenants/${id}`)).operation
  },
}

/** What it begins is held up half-way. */
async function whileHostIsAway<T extends { operation: Operation }>(begin: () => Promise<T>): Promise<T> {
  await platform.kill('host')
  const begun = await begin()
  await eventually(async () => (await begun.operation.now()).state === 'running')
  return begun
}

/** As it would be without encryption, so that it is replayed without a key; and without where it was recorded. */
async function decoded(history: unknown): Promise<void> {
  if (typeof history !== 'object' || history === null || history instanceof Uint8Array) return
  for (const [name, value] of Object.entries(history)) {
    if (isPayload(value)) Object.assign(history, { [name]: await plain(value) })
    else if (name === 'stackTrace' || name === 'identity') Object.assign(history, { [name]: '' })
    else await decoded(value)
  }
}

async function plain(payload: Payload): Promise<Payload> {
  const [{ metadata, data } = payload] = (await codec?.decode([payload])) ?? []
  const text = Buffer.from(data ?? []).toString()
  if (!text.startsWith('{')) return { metadata, data } as Payload
  const value = JSON.parse(text, (key, inner: unknown) => (key === 'stack_trace' ? '' : inner)) as unknown
  return { metadata, data: Buffer.from(JSON.stringify(value)) } as Payload
}
const [codec] = dataConverter(settings).payloadCodecs ?? []
const isPayload = (value: unknown): value is Payload =>
  typeof value === 'object' && value !== null && 'metadata' in value && 'data' in value

const temporal = temporalClient(settings)
const named = process.argv.slice(2)
if (named.length === 0) await rm(folder, { recursive: true, force: true })
await mkdir(folder, { recursive: true })
for (const [name, story] of Object.entries(stories)) {
  if (named.length > 0 && !named.includes(name)) continue
  const { workflow_id, state } = await (await story()).end()
  const handle = temporal.workflow.getHandle(workflow_id)
  await handle.result() // closing the operation is not yet the workflow's last event
  const history = (await handle.fetchHistory()) as History
  await decoded(history)
  const text = JSON.stringify(JSON.parse(historyToJSON(history)), null, 2)
  await writeFile(new URL(`${name}.json`, folder), `${text}\n`)
  console.log(`${name}: ${state}, ${history.events.length} events`)
}
await removeTenants()
await temporal.connection.close()
await disconnectDatabase()
process.exit() // the container engine's client keeps its sockets
