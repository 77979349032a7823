import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { RagDeletion } from '../../models/retrieval/deletions.ts'
import { RagDocument } from '../../models/retrieval/documents.ts'
import { storeAtWork } from '../../models/retrieval/store-condition.ts'
import { RagStore } from '../../models/retrieval/stores.ts'
import { Disk } from '../../models/storage/disks.ts'
import { Snapshot } from '../../models/storage/snapshots.ts'
import { asRoot } from '../support/as-root.ts'
import { collectionsOf } from '../support/clients/rag.ts'
import { ragStoreOf } from '../support/clients/rag-store.ts'
import { pdfOf } from '../support/documents/pdf.ts'
import { eventually } from '../support/eventually.ts'
import { restoresOf } from '../support/rag/restores.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'
import { makeSubnet, makeVpc } from '../support/vpcs.ts'

// Snapshots of a store, and what it has when it is restored from one.

let tenant: TestTenant
let on: ReturnType<typeof restoresOf>
let store: (typeof on)['store']
beforeAll(async () => {
  tenant = await makeTenant()
  on = restoresOf(tenant)
  store = on.store
  const { id } = await makeSubnet(tenant, (await makeVpc(tenant)).id)
  expect(await store.askSnapshots({ frequency: null })).toMatchObject({ status: 404 })
  expect(await store.snapshots()).toEqual([])
  await (await store.enable(id)).operation.success()
  await (await collectionsOf(tenant.owner).create({ name: 'docs' })).operation.success()
})
afterAll(removeTenants)

const its = () => ({ tenant_id: tenant.id })
/** As if this snapshot had been asked for at this time: what was indexed since is not in it. */
const asked = (name: string, at: Date) =>
  Snapshot.collection.updateOne({ ...its(), name }, { $set: { created_at: at } }) // mongoose does not change it

asRoot('snapshots of a store', () => {
  test('are taken by hand and by schedule, and as many stay as are to be kept', async () => {
    expect(await store.now()).toMatchObject({ snapshots: { frequency: null, keep: 7, next_at: null } })
    for (const [rules, pointer] of [
      [{ frequency: '61 * * * *' }, '/frequency'],
      [{ frequency: '* * * * *', timezone: 'Nowhere/None' }, '/timezone'],
      [{ frequency: null, keep: 0 }, '/keep'],
    ] as const)
      expect(await store.askSnapshots(rules)).toMatchObject({ status: 422, body: { errors: [{ pointer }] } })
    expect(await store.askSnapshots({ frequency: '0 3 * * *', keep: 2 })).toMatchObject({
      status: 200,
      body: { snapshots: { frequency: '0 3 * * *', timezone: 'UTC', keep: 2 } },
    })
    const first = await on.snapshot()
    const second = await on.snapshot()
    await RagStore.updateOne(its(), { $set: { next_snapshot_at: new Date() } })
    const names = await eventually(async () => {
      const now = await store.snapshots()
      return now.length === 2 && !now.includes(first) && now
    })
    expect(names[1]).toBe(second)
    await eventually(async () => (await store.now()).status === 'ready')
    const next = new Date((await store.now()).snapshots?.next_at ?? 0)
    expect([next.getTime() > Date.now(), next.getUTCHours()]).toEqual([true, 3])
    await store.askSnapshots({ frequency: null, keep: 7 })
  })

  test('do not stop uploads and searches', async () => {
    await on.documents().make('before.txt', 'A capstan turns.')
    const { operation } = await store.takeSnapshot()
    expect(await on.found('capstan')).toEqual(['before.txt'])
    await on.documents().make('during.txt', 'A windlass turns.')
    await operation.success()
    expect(await on.found('windlass')).toEqual(['during.txt'])
  })

  test('are the platform’s, of one tenant, for those who may change the store', async () => {
    const name = await on.snapshot()
    const disk = await Disk.findOne({ ...its(), managed_by: { $ne: null } }).lean()
    const path = `/api/v1/disks/${disk?._id}/snapshots/${name}`
    expect(await tenant.owner.ask('DELETE', path)).toMatchObject({ status: 409, body: { code: 'managed' } })
    const other = ragStoreOf((await makeTenant()).owner)
    expect(await other.snapshots()).toEqual([])
    expect(await other.askRestore(name)).toMatchObject({ status: 404 })
    const viewer = ragStoreOf(await tenant.user('viewer'))
    expect(await viewer.snapshots()).toContain(name)
    expect(await viewer.askRestore(name)).toMatchObject({ status: 403 })
    expect(await store.askRestore('none')).toMatchObject({ status: 404 })
  })
})

asRoot('a store that is restored from a snapshot', () => {
  test('has the documents as the records say, and none that was deleted since', async () => {
    await on.documents().make('stays.txt', 'Bollards stay.')
    await on.documents().make('changes.txt', 'Cleats were bronze.')
    const { id: leaving } = await on.documents().make('leaves.txt', 'Fairleads leave.')
    await (await collectionsOf(tenant.owner).create({ name: 'drops' })).operation.success()
    await on.documents('drops').make('in.txt', 'Hawsers drop.')
    await on.remade('remade', 'old')
    const since = new Date()
    const name = await on.snapshot()

    await on.documents().make('changes.txt', 'Cleats are steel.')
    await on.documents().make('comes.txt', 'Davits come.')
    await (await on.documents().delete(leaving)).operation.success()
    await (await collectionsOf(tenant.owner).delete('drops')).operation.success()
    await (await collectionsOf(tenant.owner).create({ name: 'makes' })).operation.success()
    await on.documents('makes').make('new.txt', 'Gantries are made.')
    await on.remade('remade', 'new')
    const former = (await RagStore.findOne(its()).lean())?.disk_id
    const stays = await RagDocument.findOne({ ...its(), name: 'stays.txt' }).lean()
    // What was indexed some minutes before a snapshot is indexed again, unless it was long before.
    await RagDocument.updateMany(
      { ...its(), indexed_at: { $lt: since } },
      { $set: { indexed_at: new Date(since.getTime() - 3_600_000) } },
    )

    await (await store.restore(name)).operation.success()
    await on.settled()
    expect(await on.found('bollards')).toEqual(['stays.txt'])
    expect(await on.found('steel')).toEqual(['changes.txt'])
    expect(await on.found('bronze')).toEqual([])
    expect(await on.found('davits')).toEqual(['comes.txt'])
    expect(await on.found('gantries', 'makes')).toEqual(['new.txt'])
    expect(await on.found('new', 'remade')).toEqual(['word.txt'])
    expect(await on.found('old', 'remade')).toEqual([])
    expect(await on.found('fairleads')).toEqual([])
    const door = await storeAtWork(tenant.id)
    expect((await door.search('docs', { mode: 'text', k: 5, text: 'fairleads' })).hits).toEqual([])
    await expect(door.stats('drops')).rejects.toMatchObject({ code: 'collection_not_found' })
    // Not indexed again: the snapshot has it.
    expect(await RagDocument.findOne({ ...its(), name: 'stays.txt' }).lean()).toMatchObject({
      version: stays?.version,
      indexed_version: stays?.version,
    })
    expect(await RagDocument.findOne({ ...its(), name: 'changes.txt' }).lean()).toMatchObject({
      status: 'ready',
      version: 3,
      indexed_version: 3,
    })
    // One container and one disk, which is another one, without snapshots.
    await on.expectOne()
    expect((await RagStore.findOne(its()).lean())?.disk_id).not.toBe(former)
    expect(await store.snapshots()).toEqual([])
  })

  test('takes up an upload that waits for its content, and leaves none in the index whose retry is to come', async () => {
    const since = new Date()
    const { id: waits } = await on.documents().make('waits.txt', 'Kedges wait.')
    const { id: fails } = await on
      .documents()
      .make('fails.pdf', pdfOf([[{ text: 'Jibs fail.', x: 72, y: 700 }]]))
    await (await on.documents().upload('fails.pdf', Buffer.from('%PDF-1.7\nnothing more'))).operation.end()
    const next = Buffer.from('Kedges have come.')
    const { operation, sent } = await on.documents().announce('waits.txt', next)
    const name = await on.snapshot()
    await asked(name, since)
    await (await store.restore(name)).operation.success()
    await eventually(async () => (await on.documents().get(waits)).indexed_version === null)
    expect(await on.documents().get(fails)).toMatchObject({
      status: 'error',
      failed_stage: 'extracting',
      indexed_version: null,
    })
    expect(await on.found('jibs')).toEqual([])
    expect(await on.documents().get(waits)).toMatchObject({ stage: 'uploading', indexed_version: null })
    await operation.cancel()
    await operation.end()
    expect(await on.documents().get(waits)).toMatchObject({ status: 'error', failed_stage: 'indexing' })
    expect((await sent.head()).status).toBe(410)
    await (await on.documents().retry(waits)).operation.success()
    expect(await on.found('kedges')).toEqual(['waits.txt'])
  })
})

asRoot('the deletion of a document', () => {
  describe('with `purge`', () => {
    test('removes the snapshots that may have it, and no others', async () => {
      await on.settled()
      const before = await on.snapshot()
      await asked(before, new Date(Date.now() - 3_600_000))
      const { id } = await on.documents().make('secret.txt', 'The password is swordfish.')
      const [with1, with2] = [await on.snapshot(), await on.snapshot()]
      expect(await store.snapshots()).toEqual(expect.arrayContaining([with1, with2, before]))
      await (await on.documents().purge(id)).operation.success()
      expect(await store.snapshots()).toEqual([before])
    })

    test('waits for a snapshot that is being taken', async () => {
      const { id } = await on.documents().make('late.txt', 'Keels are late.')
      const { operation } = await store.takeSnapshot()
      await (await on.documents().purge(id)).operation.success()
      await operation.end()
      const taken = await Snapshot.find({
        ...its(),
        created_at: { $gt: new Date(Date.now() - 600_000) },
      }).lean()
      expect(taken).toEqual([])
    })
  })

  test('is noted as long as a snapshot may have it', async () => {
    const { id } = await on.documents().make('noted.txt', 'Rudders are noted.')
    const name = await on.snapshot()
    await (await on.documents().delete(id)).operation.success()
    expect(await RagDeletion.countDocuments({ ...its(), _id: id })).toBe(1)
    await (await store.restore(name)).operation.success()
    await on.settled()
    expect(await on.found('rudders')).toEqual([])
    const { id: other } = await on.documents().make('unnoted.txt', 'Tillers are not.')
    await (await on.documents().delete(other)).operation.success()
    expect(await RagDeletion.countDocuments({ ...its(), _id: other })).toBe(0)
  })

  test('and that of the store leave nothing', async () => {
    await on.snapshot()
    await (await store.disable()).operation.success()
    for (const model of [RagDeletion, RagDocument, Snapshot])
      expect(await (model as typeof RagDeletion).countDocuments(its())).toBe(0)
    expect(await Disk.countDocuments({ ...its(), managed_by: { $ne: null } })).toBe(0)
  })
})
