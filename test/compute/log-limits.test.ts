import { randomBytes } from 'node:crypto'
import { afterEach, describe, expect, test } from '@jest/globals'
import { pino } from 'pino'
import { newId } from '../../lib/ids.ts'
import { keepPiece, LogArchive, LogPiece, removeArchive } from '../../models/compute/log-archive.ts'
import { LogTotal } from '../../models/compute/log-totals.ts'
import { Tenant } from '../../models/identity/tenants.ts'
import { keepStoreRoom } from '../../models/store-room.ts'
import { eventually } from '../support/eventually.ts'
import { askArchive, hasMore, numbers, piecesOf, writer } from '../support/log-archive.ts'
import { makeTenant } from '../support/tenants.ts'

// A tenant writes without end: the archive takes max_archive_gib of it, and nothing if the store is full.

const hash = (): string => randomBytes(32).toString('hex')
const gib = 1024 ** 3
const bytes = 100_000

const limited = async (max_archive_gib: number): Promise<string> =>
  (await new Tenant({ name: `test-${newId()}`, limits: { max_archive_gib } }).save())._id

/** An instance that sends one piece after another. */
function sender(tenant_id: string) {
  const of = { tenant_id, instance_id: newId(), host_id: newId() }
  const file = { engine_id: hash(), engine_created_at: '2026-01-01T00:00:00Z', after_gap: 'false' as const }
  return {
    id: of.instance_id,
    send: (content = randomBytes(bytes)) =>
      keepPiece(of, { ...file, file: hash(), from: 0, bytes: 10 }, content),
  }
}

const totalOf = async (tenant_id: string) => (await LogTotal.findOne({ tenant_id }).lean())?.stored_bytes
const sumOf = async (tenant_id: string) =>
  (await LogPiece.find({ tenant_id }).lean()).reduce((sum, { stored_bytes }) => sum + stored_bytes, 0)
const cutOf = async (_id: string, tenant_id: string) =>
  (await LogArchive.findOne({ _id, tenant_id }).lean())?.cut

describe('a tenant’s archive', () => {
  test('drops its oldest pieces, of any instance, for new ones; sent in parallel, they never exceed the limit', async () => {
    const tenant = await limited(1)
    const [one, two] = [sender(tenant), sender(tenant)]
    const other = sender(await limited(1))
    await other.send()
    await one.send()
    // As if the rest of the limit were in use, but for three pieces and a half.
    const used = gib - 3.5 * bytes
    await LogTotal.updateOne({ tenant_id: tenant }, { $inc: { stored_bytes: used } })
    await two.send()
    expect(await cutOf(one.id, tenant)).toBeUndefined()
    await Promise.all(Array.from({ length: 6 }, () => two.send()))

    expect(await piecesOf(one.id)).toEqual([])
    expect((await piecesOf(two.id)).map(({ seq }) => seq)).toEqual([5, 6, 7])
    expect(await totalOf(tenant)).toBe(used + (await sumOf(tenant)))
    expect(await totalOf(tenant)).toBeLessThanOrEqual(gib)
    expect([(await cutOf(one.id, tenant))?.seq, (await cutOf(two.id, tenant))?.seq]).toEqual([1, 4])
    expect(await piecesOf(other.id)).toHaveLength(1)

    await one.send() // its numbers go on where readers of the dropped ones are
    expect((await piecesOf(one.id)).map(({ seq }) => seq)).toEqual([2])
    for (const { id } of [one, two, other]) await removeArchive(id)
    expect(await totalOf(tenant)).toBe(used)
  })

  test('is counted from its first piece to its last, first pieces in parallel', async () => {
    const tenant = await limited(1)
    const senders = [sender(tenant), sender(tenant), sender(tenant)]
    await Promise.all(senders.map(({ send }) => send()))
    expect(await totalOf(tenant)).toBe(await sumOf(tenant))
    expect(await piecesOf(senders[0]?.id ?? '')).toHaveLength(1)
    for (const { id } of senders) await removeArchive(id)
    expect(await totalOf(tenant)).toBe(0)
    expect(await sumOf(tenant)).toBe(0)
  })

  test('shows what it takes in GET /limits, beside its limit, and never counts as storage', async () => {
    const tenant = await makeTenant({ max_archive_gib: 2 })
    const { id, send } = sender(tenant.id)
    await send()
    await LogTotal.updateOne({ tenant_id: tenant.id }, { $inc: { stored_bytes: 1.5 * gib } })
    expect(await tenant.owner.get('/api/v1/limits')).toMatchObject({
      max_archive_gib: 2,
      usage: { max_archive_gib: { used: 1.5, reserved: 0 }, max_storage_gib: { used: 0, reserved: 0 } },
    })
    await LogTotal.updateOne({ tenant_id: tenant.id }, { $inc: { stored_bytes: -1.5 * gib } })
    await removeArchive(id)
  })

  test('of a container that writes without end stays at the limit, and its answer says what is missing', async () => {
    const tenant = await makeTenant({ max_archive_gib: 0 }) // nothing but the newest piece
    const { id } = await tenant.containers.make(writer(50_000, 'sleep 600'))
    await hasMore(id, 0)
    await eventually(async () => ((await piecesOf(id)).at(-1)?.seq ?? 0) > 5)
    expect(await LogPiece.countDocuments({ tenant_id: tenant.id })).toBe(1)

    const lines = await eventually(async () => {
      const answer = await askArchive(tenant.owner, id)
      const read: string[] = []
      for await (const line of answer.lines) read.push(line)
      expect(answer.complete()).toBe('false')
      return read.at(-1)?.startsWith('50000 ') && read
    })
    expect(lines[0]).toMatch(/^\[keelson: output is missing here: .*max_archive_gib/)
    const rest = numbers(lines.filter((line) => !line.startsWith('[keelson: ')))
    expect(rest).toEqual([...new Set(rest)].toSorted((a, b) => a - b))
    expect(await tenant.containers.activity(id)).toContainEqual(
      expect.objectContaining({ kind: 'archive_cut' }),
    )
  })
})

describe('while MongoDB’s disk has less room than is kept for records', () => {
  const log = pino({ level: 'silent' })
  afterEach(() => keepStoreRoom({ KEELSON_STORE_FREE_GIB: 0 }, log))

  test('a piece is refused and leaves nothing; a gap in its place is taken, and pieces when there is room', async () => {
    const tenant = await limited(1)
    const { id, send } = sender(tenant)
    keepStoreRoom({ KEELSON_STORE_FREE_GIB: 1_000_000 }, log)
    await expect(send()).rejects.toMatchObject({ status: 503, code: 'store_full' })
    expect([await piecesOf(id), await totalOf(tenant)]).toEqual([[], undefined])
    await send(Buffer.alloc(20))
    keepStoreRoom({ KEELSON_STORE_FREE_GIB: 0.001 }, log)
    await send()
    expect(await piecesOf(id)).toHaveLength(2)
    await removeArchive(id)
  })
})
