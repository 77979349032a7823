import { randomInt } from 'node:crypto'
import { type Document, MongoClient } from 'mongodb'
import PQueue from 'p-queue'
import { newId } from '../../../lib/ids.ts'

// The MongoDB writes of one change of a stopped container, by the driver alone. Statements and transactions are those
// of the platform, as MongoDB's profiler shows them; each collection has the platform's indexes.

const names = [
  'containers',
  'operations',
  'reservations',
  'tenants',
  'hosts',
  'counters',
  'audit_events',
] as const
type Name = (typeof names)[number]
type Stored = Document & { _id: string }
interface Container {
  _id: string
  tenant_id: string
  name: string
  host_id: string
}
const counterParts = 32

export type Writes = Awaited<ReturnType<typeof connectWrites>>

export async function connectWrites(mongodbUrl: string) {
  const mongodb = await MongoClient.connect(mongodbUrl, {
    writeConcern: { w: 'majority', journal: true },
    maxPoolSize: 50,
  })
  const of = (name: Name) => mongodb.db().collection<Stored>(`bench_${name}`)
  // All containers belong to one tenant, whose usage each transaction changes: they run one after another, as in the
  // API.
  const inTurn = new PQueue({ concurrency: 1 })

  return {
    /** Copies these containers, and the documents that their changes touch, to the benchmark's collections. */
    async copy(ids: string[]): Promise<Container[]> {
      const these = { _id: { $in: ids } }
      const filters: Partial<Record<Name, object>> = {
        containers: these,
        reservations: these,
        tenants: {},
        hosts: {},
      }
      for (const name of names) {
        const source = mongodb.db().collection<Stored>(name)
        const made = await mongodb.db().createCollection<Stored>(`bench_${name}`)
        const indexes = (await source.indexes()).filter(({ name: index }) => index !== '_id_')
        if (indexes.length) await made.createIndexes(indexes)
        const filter = filters[name]
        if (filter) await made.insertMany(await source.find(filter).toArray())
      }
      return (await of('containers').find().toArray()) as Container[]
    },

    /** Makes the API's writes; returns the operation's id. */
    async accept({ _id, tenant_id, name, host_id }: Container, memory_mib: number): Promise<string> {
      const operation_id = newId()
      const write = (): Promise<unknown> =>
        mongodb.withSession((session) =>
          session.withTransaction(async () => {
            const now = new Date()
            const before = await of('containers').findOneAndUpdate(
              { _id, tenant_id, operation_id: null, status: { $in: ['running', 'stopped', 'error'] } },
              { $set: { status: 'updating', status_reason: null, operation_id, updated_at: now } },
              { session, returnDocument: 'before' },
            )
            if (!before) throw new Error(`${name} is busy`)
            await of('counters').updateOne(
              { _id: `operations:${tenant_id}:${randomInt(counterParts)}` },
              { $inc: { count: 1 } },
              { session, upsert: true },
            )
            const input = { changes: { memory_mib } }
            const operation = newOperation(operation_id, { _id, tenant_id, name }, input, now)
            await of('operations').insertOne(operation, { session })
            const size = { cpu_milli: 100, memory_mib, disk_gib: 0 }
            const held = await of('reservations').findOneAndUpdate(
              { _id, tenant_id },
              { $set: size },
              { session, returnDocument: 'before' },
            )
            const more = memory_mib - Number(held?.['memory_mib'])
            await of('tenants').updateOne(
              { _id: tenant_id, $expr: fits(more, '$usage', '$quota') },
              { $set: { updated_at: now }, $inc: increments('usage', more) },
              { session },
            )
            await of('hosts').updateOne(
              { _id: host_id, $expr: fits(more, '$reserved', '$capacity') },
              { $set: { updated_at: now }, $inc: increments('reserved', more) },
              { session },
            )
          }),
        )
      await inTurn.add(write)
      await of('audit_events').insertOne(auditEvent(_id, tenant_id))
      return operation_id
    },

    /** Makes the worker's first write. */
    async begin(id: string): Promise<void> {
      const now = new Date()
      await of('operations').findOneAndUpdate(
        { _id: id, open: true },
        [
          { $set: { state: 'running', started_at: { $ifNull: ['$started_at', '$$NOW'] } } },
          { $unset: 'undispatched' },
          { $set: { updated_at: now } },
        ],
        { returnDocument: 'after' },
      )
    },

    /** Makes the worker's last write. */
    async end(id: string): Promise<void> {
      await mongodb.withSession((session) =>
        session.withTransaction(async () => {
          const updated_at = new Date()
          const operation = await of('operations').findOneAndUpdate(
            { _id: id, open: true },
            {
              $set: { state: 'succeeded', ended_at: updated_at, error: null, updated_at },
              $unset: { open: 1, undispatched: 1, step: 1 },
            },
            { session },
          )
          if (!operation) return
          const { resource_id, tenant_id, input } = operation as unknown as ReturnType<typeof newOperation>
          const settled = { ...input.changes, status: 'stopped', status_reason: null, pending_changes: [] }
          await of('containers').updateOne(
            { _id: resource_id, tenant_id, operation_id: id },
            { $set: { ...settled, operation_id: null, updated_at } },
            { session },
          )
        }),
      )
    },

    async drop(): Promise<void> {
      for (const name of names) await of(name).drop()
    },

    close: (): Promise<void> => mongodb.close(),
  }
}

const amounts = ['cpu_milli', 'memory_mib', 'disk_gib'] as const

const increments = (field: string, memoryMib: number): Record<string, number> =>
  Object.fromEntries(amounts.map((amount) => [`${field}.${amount}`, amount === 'memory_mib' ? memoryMib : 0]))

/** A condition as costly as the platform's: three sums, each compared with a limit or null. */
const fits = (more: number, used: string, limit: string) => ({
  $and: amounts.map((amount) => ({
    $or: [
      { $lte: [more, 0] },
      { $lte: [{ $add: [`${used}.${amount}`, more] }, { $ifNull: [`${limit}.${amount}`, Infinity] }] },
    ],
  })),
})

const newOperation = (
  _id: string,
  container: { _id: string; tenant_id: string; name: string },
  input: { changes: { memory_mib: number } },
  now: Date,
) => ({
  _id,
  tenant_id: container.tenant_id,
  resource_kind: 'container',
  resource_id: container._id,
  resource_name: container.name,
  verb: 'update',
  input,
  state: 'pending',
  open: true,
  undispatched: true,
  workflow_id: `container-update-${_id}`,
  supersedes: null,
  requested_by: container.tenant_id,
  cancel_requested_at: null,
  before: { status: 'stopped' },
  step: null,
  error: null,
  started_at: null,
  ended_at: null,
  created_at: now,
  updated_at: now,
})

const auditEvent = (resource_id: string, tenant_id: string) => ({
  _id: newId(),
  tenant_id,
  time: new Date(),
  actor_id: tenant_id,
  actor_kind: 'user',
  actor_name: 'owner@example.com',
  action: 'PUT /api/v1/containers/{id}',
  resource_kind: 'container',
  resource_id,
  path: `/api/v1/containers/${resource_id}`,
  address: '127.0.0.1',
  user_agent: '',
  status: 202,
  outcome: 'succeeded',
  problem_code: null,
  request_id: newId(),
})
