import { DatabaseSync } from 'node:sqlite'
import { join } from 'node:path'
import { afterEach, describe, expect, test } from '@jest/globals'
import { collectionFile } from '../../images/rag/files.ts'
import { filesWith } from '../support/rag/files.ts'
import {
  collection,
  describeForgetting,
  documentWith,
  fill,
  replace,
  tracesOf,
  words,
} from '../support/rag/forgetting.ts'
import { openServer, type ServedStore } from '../support/rag/servers.ts'
import { type OpenStore, openEngine } from '../support/rag/stores.ts'

const files = ({ folder }: OpenStore): string => join(folder, 'collections')
describeForgetting('SQLite', openEngine, files)

describe('a store in SQLite', () => {
  let opened: OpenStore
  afterEach(() => opened.close())

  test('a snapshot keeps what is deleted later, until the next one', async () => {
    opened = await openEngine()
    await fill(opened)
    const document = documentWith('secret', 1, words(3))
    await replace(opened, document)
    const { path } = await opened.store.snapshot(collection)
    await opened.store.deleteDocument(collection, 'secret', 1)
    expect(filesWith(opened.folder, tracesOf(document))).not.toEqual([])
    const copy = new DatabaseSync(join(opened.folder, path), { readOnly: true })
    expect(copy.prepare("SELECT count(*) AS n FROM words WHERE words MATCH 'common'").get()).toEqual({
      n: 103,
    })
    copy.close()
    await opened.store.snapshot(collection)
    expect(filesWith(opened.folder, tracesOf(document))).toEqual([])
  })

  test('a store that was killed between a deletion and the emptying of its log has forgotten once it is back', async () => {
    const served: ServedStore = await openServer()
    opened = served
    await fill(opened)
    const document = documentWith('secret', 1, words(5))
    await replace(opened, document)
    // A reader of another process keeps the log from being emptied: the deletion is in it, and waits.
    const reader = new DatabaseSync(collectionFile(served.folder, collection), { readOnly: true })
    reader.exec('BEGIN')
    reader.prepare('SELECT count(*) FROM chunks').get()
    const deletion = served.store.deleteDocument(collection, 'secret', 1).catch(() => 'killed')
    for (let chunks = 105; chunks > 100; ) chunks = (await served.store.stats(collection)).chunks
    expect(filesWith(files(opened), tracesOf(document))).not.toEqual([])
    const killed = served.kill()
    expect(await deletion).toBe('killed')
    reader.close()
    await killed
    await served.store.stats(collection) // it is loaded
    expect(filesWith(files(opened), tracesOf(document))).toEqual([])
  })
})
