import { afterAll, afterEach, beforeAll, describe, expect, jest, test } from '@jest/globals'
import { instanceKinds } from '../../models/compute/instance-kinds.ts'
import { RagDeletion } from '../../models/retrieval/deletions.ts'
import { RagDocument } from '../../models/retrieval/documents.ts'
import { storeAtWork } from '../../models/retrieval/store-condition.ts'
import { RagStore } from '../../models/retrieval/stores.ts'
import { Disk } from '../../models/storage/disks.ts'
import { Snapshot } from '../../models/storage/snapshots.ts'
import { asRoot } from '../support/as-root.ts'
import { collectionsOf, documentsOf } from '../support/clients/rag.ts'
import { ragStoreOf } from '../support/clients/rag-store.ts'
import { pdfOf } from '../support/documents/pdf.ts'
import { eventually } from '../support/eventually.ts'
import { platform, startAll } from '../support/platform.ts'
import { sampled } from '../support/sampled.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'
import { makeSubnet, makeVpc } from '../support/vpcs.ts'

// Snapshots of a store, and what it has when it is restored from one.

jest.setTimeout(600_000)

let tenant: TestTenant
let store: ReturnType<typeof ragStoreOf>
beforeAll(async () => {
  tenant = await makeTenant()
  store = ragStoreOf(tenant.owner)
  const { id } = await makeSubnet(tenant, (await makeVpc(tenant)).id)
  expect(await store.askSnapshots({ frequency: null })).toMatchObject({ status: 404 })
  expect(await store.snapshots()).toEqual([])
  await (await store.enable(id)).operation.success()
  await (await collectionsOf(tenant.owner).create({ name: 'docs' })).operation.success()
})
afterEach(startAll)
afterAll(removeTenants)

const documents = (name = 'docs') => documentsOf(tenant.owner, name)
const its = () => ({ tenant_id: tenant.id })

async function snapshot(): Promise<string> {
  await (await store.takeSnapshot()).operation.success()
  const [name = ''] = await store.snapshots()
  return name
}

/** The documents that a search for a word finds. */
const found = async (word: string, name = 'docs'): Promise<string[]> =>
  (await documents(name).search(word, { mode: 'text' })).map(({ document }) => document.name)

/** A collection with a document that has this word: a new one if there is one of this name. */
async function remade(name: string, word: string): Promise<void> {
  const collections = collectionsOf(tenant.owner)
  if ((await collections.list(`?name=${name}`)).length)
    await (await collections.delete(name)).operation.success()
  await (await collections.create({ name })).operation.success()
  await documents(name).make('word.txt', `The word is ${word}.`)
}

/** The store has one container and one disk. */
async function expectOne(): Promise<void> {
  const managed = { ...its(), managed_by: { $ne: null } }
  expect(await Disk.countDocuments(managed)).toBe(1)
  expect(await instanceKinds.container.model.countDocuments(managed)).toBe(1)
}

/** Waits until no document has work under way. */
const settled = () =>
  eventually(async () => (await RagDocument.countDocuments({ ...its(), operation_id: { $ne: null } })) === 0)

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
    const first = await snapshot()
    const second = await snapshot()
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
    await documents().make('before.txt', 'A capstan turns.')
    const { operation } = await store.takeSnapshot()
    expect(await found('capstan')).toEqual(['before.txt'])
    await documents().make('during.txt', 'A windlass turns.')
    await operation.success()
    expect(await found('windlass')).toEqual(['during.txt'])
  })

  test('are the platform’s, of one tenant, for those who may change the store', async () => {
    const name = await snapshot()
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
    await documents().make('stays.txt', 'Bollards stay.')
    await documents().make('changes.txt', 'Cleats were bronze.')
    const { id: leaving } = await documents().make('leaves.txt', 'Fairleads leave.')
    await (await collectionsOf(tenant.owner).create({ name: 'drops' })).operation.success()
    await documents('drops').make('in.txt', 'Hawsers drop.')
    await remade('remade', 'old')
    const since = new Date()
    const name = await snapshot()

    await documents().make('changes.txt', 'Cleats are steel.')
    await documents().make('comes.txt', 'Davits come.')
    await (await documents().delete(leaving)).operation.success()
    await (await collectionsOf(tenant.owner).delete('drops')).operation.success()
    await (await collectionsOf(tenant.owner).create({ name: 'makes' })).operation.success()
    await documents('makes').make('new.txt', 'Gantries are made.')
    await remade('remade', 'new')
    const former = (await RagStore.findOne(its()).lean())?.disk_id
    const stays = await RagDocument.findOne({ ...its(), name: 'stays.txt' }).lean()
    // What was indexed some minutes before a snapshot is indexed again, unless it was long before.
    await RagDocument.updateMany(
      { ...its(), indexed_at: { $lt: since } },
      { $set: { indexed_at: new Date(since.getTime() - 3_600_000) } },
    )

    await (await store.restore(name)).operation.success()
    await eventually(async () => (await store.now()).ready)
    await settled()
    expect(await found('bollards')).toEqual(['stays.txt'])
    expect(await found('steel')).toEqual(['changes.txt'])
    expect(await found('bronze')).toEqual([])
    expect(await found('davits')).toEqual(['comes.txt'])
    expect(await found('gantries', 'makes')).toEqual(['new.txt'])
    expect(await found('new', 'remade')).toEqual(['word.txt'])
    expect(await found('old', 'remade')).toEqual([])
    expect(await found('fairleads')).toEqual([])
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
    await expectOne()
    expect((await RagStore.findOne(its()).lean())?.disk_id).not.toBe(former)
    expect(await store.snapshots()).toEqual([])
  })

  test('takes up an upload that waits for its content, and leaves none in the index whose retry is to come', async () => {
    const since = new Date()
    const { id: waits } = await documents().make('waits.txt', 'Kedges wait.')
    const { id: fails } = await documents().make(
      'fails.pdf',
      pdfOf([[{ text: 'Jibs fail.', x: 72, y: 700 }]]),
    )
    await (await documents().upload('fails.pdf', Buffer.from('%PDF-1.7\nnothing more'))).operation.end()
    const next = Buffer.from('Kedges have come.')
    const { operation, sent } = await documents().announce('waits.txt', next)
    const name = await snapshot()
    await asked(name, since)
    await (await store.restore(name)).operation.success()
    await eventually(async () => (await documents().get(waits)).indexed_version === null)
    expect(await documents().get(fails)).toMatchObject({
      status: 'error',
      failed_stage: 'extracting',
      indexed_version: null,
    })
    expect(await found('jibs')).toEqual([])
    expect(await documents().get(waits)).toMatchObject({ stage: 'uploading', indexed_version: null })
    await operation.cancel()
    await operation.end()
    expect(await documents().get(waits)).toMatchObject({ status: 'error', failed_stage: 'indexing' })
    expect((await sent.head()).status).toBe(410)
    await (await documents().retry(waits)).operation.success()
    expect(await found('kedges')).toEqual(['waits.txt'])
  })

  test.each(['copying', 'starting', 'waiting', 'deleting'])(
    'has lost nothing if that is cancelled at the step "%s"',
    async (step) => {
      await documents().make(`same-${step}.txt`, `Masts are the same: ${step}.`)
      await remade('remade', 'former')
      const { id } = await documents().make('goes.txt', 'Yawls go.')
      const name = await snapshot()
      await remade('remade', step)
      const { operation } = await store.restore(name)
      await eventually(async () => {
        const { step: present, state } = await operation.now()
        return present?.startsWith(step) || !['pending', 'running'].includes(state)
      })
      // It must not be carried out on a disk that goes.
      const { operation: deletion } = await documents().delete(id)
      await operation.cancel()
      const { state } = await operation.end()
      await deletion.success()
      await eventually(async () => (await store.now()).ready)
      await settled()
      expect(await found('masts')).toContain(`same-${step}.txt`)
      expect(await found(step, 'remade')).toEqual(['word.txt'])
      expect(await found('former', 'remade')).toEqual([])
      const door = await storeAtWork(tenant.id)
      expect((await door.search('docs', { mode: 'text', k: 5, text: 'yawls' })).hits).toEqual([])
      if (state === 'cancelled') expect(await store.snapshots()).toContain(name)
      await expectOne()
    },
  )

  const cases = (['worker', 'host', 'temporal', 'mongodb', 'api'] as const).flatMap((what) =>
    ['copying', 'starting', 'waiting', 'deleting', 'indexing', 'removing'].map((step) => ({ what, step })),
  )
  test.each(sampled(cases, 3))(
    'is restored if $what is killed at the step "$step"',
    async ({ what, step }) => {
      const { id } = await documents().make('gone.txt', 'Oars are gone.')
      await remade('remade', 'former')
      const name = await snapshot()
      await (await documents().delete(id)).operation.success()
      const later = `new-${what}-${step}.txt`
      await documents().make(later, `Sails are new: ${later}.`)
      await remade('remade', what)
      const { operation } = await store.restore(name)
      await eventually(async () => {
        const { step: present, state } = await operation.now()
        return present?.startsWith(step) || !['pending', 'running'].includes(state)
      })
      await platform.restartKilled(what)
      await operation.success()
      await eventually(async () => (await store.now()).ready)
      await settled()
      expect(await found('oars')).toEqual([])
      expect(await found('sails')).toContain(later)
      expect(await found(what, 'remade')).toEqual(['word.txt'])
      expect(await found('former', 'remade')).toEqual([])
      await expectOne()
    },
  )
})

asRoot('the deletion of a document', () => {
  describe('with `purge`', () => {
    test('removes the snapshots that may have it, and no others', async () => {
      await settled()
      const before = await snapshot()
      await asked(before, new Date(Date.now() - 3_600_000))
      const { id } = await documents().make('secret.txt', 'The password is swordfish.')
      const [with1, with2] = [await snapshot(), await snapshot()]
      expect(await store.snapshots()).toEqual(expect.arrayContaining([with1, with2, before]))
      await (await documents().purge(id)).operation.success()
      expect(await store.snapshots()).toEqual([before])
    })

    test('waits for a snapshot that is being taken', async () => {
      const { id } = await documents().make('late.txt', 'Keels are late.')
      const { operation } = await store.takeSnapshot()
      await (await documents().purge(id)).operation.success()
      await operation.end()
      const taken = await Snapshot.find({
        ...its(),
        created_at: { $gt: new Date(Date.now() - 600_000) },
      }).lean()
      expect(taken).toEqual([])
    })
  })

  test('is noted as long as a snapshot may have it', async () => {
    const { id } = await documents().make('noted.txt', 'Rudders are noted.')
    const name = await snapshot()
    await (await documents().delete(id)).operation.success()
    expect(await RagDeletion.countDocuments({ ...its(), _id: id })).toBe(1)
    await (await store.restore(name)).operation.success()
    await settled()
    expect(await found('rudders')).toEqual([])
    const { id: other } = await documents().make('unnoted.txt', 'Tillers are not.')
    await (await documents().delete(other)).operation.success()
    expect(await RagDeletion.countDocuments({ ...its(), _id: other })).toBe(0)
  })

  test('and that of the store leave nothing', async () => {
    await snapshot()
    await (await store.disable()).operation.success()
    for (const model of [RagDeletion, RagDocument, Snapshot])
      expect(await (model as typeof RagDeletion).countDocuments(its())).toBe(0)
    expect(await Disk.countDocuments({ ...its(), managed_by: { $ne: null } })).toBe(0)
  })
})
