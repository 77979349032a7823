import { expect } from '@jest/globals'
import { instanceKinds } from '../../../models/compute/instance-kinds.ts'
import { RagDocument } from '../../../models/retrieval/documents.ts'
import { Disk } from '../../../models/storage/disks.ts'
import { collectionsOf, documentsOf } from '../clients/rag.ts'
import { ragStoreOf } from '../clients/rag-store.ts'
import { eventually } from '../eventually.ts'
import type { TestTenant } from '../tenants.ts'

/** What tests of restored stores ask a tenant's store. */
export function restoresOf({ id: tenant_id, owner }: TestTenant) {
  const store = ragStoreOf(owner)
  const collections = collectionsOf(owner)
  const documents = (name = 'docs') => documentsOf(owner, name)
  return {
    store,
    documents,

    /** The name of a new snapshot. */
    async snapshot(): Promise<string> {
      await (await store.takeSnapshot()).operation.success()
      const [name = ''] = await store.snapshots()
      return name
    },

    /** The documents that a search for a word finds. */
    found: async (word: string, name = 'docs'): Promise<string[]> =>
      (await documents(name).search(word, { mode: 'text' })).map(({ document }) => document.name),

    /** A collection with a document that has this word: a new one if there is one of this name. */
    async remade(name: string, word: string): Promise<void> {
      if ((await collections.list(`?name=${name}`)).length)
        await (await collections.delete(name)).operation.success()
      await (await collections.create({ name })).operation.success()
      await documents(name).make('word.txt', `The word is ${word}.`)
    },

    /** Waits until the store is ready, and no document has work under way. */
    async settled(): Promise<void> {
      await eventually(async () => (await store.now()).ready)
      await eventually(
        async () => (await RagDocument.countDocuments({ tenant_id, operation_id: { $ne: null } })) === 0,
      )
    },

    /** The store has one container and one disk. */
    async expectOne(): Promise<void> {
      const managed = { tenant_id, managed_by: { $ne: null } }
      expect(await Disk.countDocuments(managed)).toBe(1)
      expect(await instanceKinds.container.model.countDocuments(managed)).toBe(1)
    },
  }
}
