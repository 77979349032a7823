import { randomBytes } from 'node:crypto'
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from '@jest/globals'
import { collectionFile } from '../../images/rag/files.ts'
import { documentOf, embedder, spec } from '../support/rag/samples.ts'
import { openServer } from '../support/rag/servers.ts'

test('a collection whose file is damaged keeps no other from its readers, and can be dropped', async () => {
  const served = await openServer()
  for (const name of ['good', 'bad']) {
    await served.store.createCollection(name, spec)
    await served.store.replaceDocument(name, embedder, documentOf('d', 1, ['a fox']))
  }
  await served.stop()
  await writeFile(collectionFile(served.folder, 'bad'), randomBytes(50_000))
  // Left by a process that was killed while it created, dropped and copied collections.
  await writeFile(collectionFile(served.folder, 'begun'), '')
  await writeFile(`${collectionFile(served.folder, 'dropped')}-wal`, 'x')
  await mkdir(join(served.folder, 'snapshots'), { recursive: true })
  await writeFile(join(served.folder, 'snapshots/good.sqlite.part'), 'x')
  await served.again()

  const search = (name: string) => served.store.search(name, { mode: 'text', k: 1, text: 'fox' })
  expect((await search('good')).hits).toHaveLength(1)
  const damaged = { code: 'collection_damaged' }
  await expect(search('bad')).rejects.toMatchObject(damaged)
  await expect(served.store.stats('bad')).rejects.toMatchObject(damaged)
  await expect(served.store.createCollection('bad', spec)).rejects.toMatchObject(damaged)
  await expect(search('begun')).rejects.toMatchObject({ code: 'collection_not_found' })
  await served.store.dropCollection('bad')
  expect(await served.store.createCollection('bad', spec)).toMatchObject({ documents: 0 })
  expect(await served.store.snapshot('good')).toMatchObject({ path: 'snapshots/good.sqlite' })
  await served.close()
})
