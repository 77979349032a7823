import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import { afterEach, expect, test } from '@jest/globals'
import type { Snapshot } from '../../../images/rag/store.ts'
import {
  collection,
  describeForgetting,
  documentWith,
  fill,
  replace,
  words,
} from '../../support/rag/forgetting.ts'
import { describePgvector, openPgvector, programs } from '../../support/rag/pgvector.ts'
import type { OpenStore } from '../../support/rag/stores.ts'

describePgvector('pgvector', () => {
  // All files of PostgreSQL are looked at, also its log.
  describeForgetting('forgets', openPgvector, ({ folder }) => folder, { forms: 2 })
})

describePgvector('a store in pgvector', () => {
  let opened: OpenStore
  afterEach(() => opened.close())

  test('has a snapshot that keeps what is deleted later, until the next one', async () => {
    opened = await openPgvector()
    await fill(opened)
    const [word] = words(1) as [string]
    await replace(opened, documentWith('secret', 1, [word]))
    const has = ({ path }: Snapshot): boolean => {
      const sql = execFileSync(join(programs, 'pg_restore'), ['--file', '-', join(opened.folder, path)], {
        maxBuffer: 2 ** 30,
      })
      return sql.includes(Buffer.from(word).toString('hex')) // a text is bytes
    }
    const first = await opened.store.snapshot(collection)
    await opened.store.deleteDocument(collection, 'secret', 1)
    expect(has(first)).toBe(true)
    expect(has(await opened.store.snapshot(collection))).toBe(false)
  })
})
