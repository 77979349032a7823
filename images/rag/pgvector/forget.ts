import { setTimeout as delay } from 'node:timers/promises'
import { type Collection, dropVectors, schemaOf, tableOf } from './schema.ts'
import type { Session, Sessions } from './sessions.ts'

// What was removed is taken out of all files. PostgreSQL itself only marks rows as dead, and leaves their bytes. So:
//
// 1. The index of vectors is vacuumed: pgvector overwrites the removed vectors in it.
// 2. The tables with removed chunks are written anew, and those without any chunk left are dropped.
// 3. The log begins a new file. After a checkpoint, no older one is there, nor a file of a table that was dropped.

const looksEveryMs = 10

interface Removal {
  number: number
  tables: number[]
}

/** Forgets all that was removed from a collection before. Nobody changes the collection meanwhile. */
export async function forget(sessions: Sessions, collection: number): Promise<void> {
  await sessions.alone(async (session) => {
    const removals = await session.run<Removal>('SELECT number, tables FROM removals WHERE collection = $1', [
      collection,
    ])
    if (!removals.length) return
    const numbers = removals.map(({ number }) => number)
    await awaitReaders(session, numbers)
    await clear(session, collection, [...new Set(removals.flatMap(({ tables }) => tables))])
    await emptyLog(session)
    await session.run('DELETE FROM removals WHERE number = ANY ($1::bigint[])', [numbers])
  })
}

/** For a collection that was dropped. */
export const forgetDropped = (sessions: Sessions): Promise<void> => sessions.alone(emptyLog)

async function clear(session: Session, number: number, tables: number[]): Promise<void> {
  const schema = schemaOf({ number })
  const [collection] = await session.run<Pick<Collection, 'vectors' | 'aside_vectors' | 'next_chunk'>>(
    'SELECT vectors, aside_vectors, next_chunk FROM collections WHERE number = $1',
    [number],
  )
  if (!collection) return
  const used = [collection.vectors, collection.aside_vectors].filter((one) => one !== null)
  await dropFormer(session, number, used)
  for (const set of used) await session.run(`VACUUM (INDEX_CLEANUP ON) ${schema}.places_${set}`)
  const parts = ['chunks', ...used.map((set) => `vectors_${set}`)]
  for (const table of tables) {
    const names = parts.map((part) => `${schema}.${part}_t${table}`)
    for (const name of names) await writeAnew(session, name)
    if (table < tableOf(collection.next_chunk)) await dropEmpty(session, names)
  }
  await session.run(`VACUUM FULL ${schema}.documents`)
  await session.run('VACUUM collections, removals')
}

/** The tables of embedders that the collection had. */
async function dropFormer(session: Session, number: number, used: number[]): Promise<void> {
  const sets = await session.run<{ set: number }>(
    `SELECT substr(relname, 9)::int AS set FROM pg_class
     WHERE relnamespace = $1::regnamespace AND relkind = 'p' AND relname LIKE 'vectors\\_%'`,
    [schemaOf({ number })],
  )
  for (const { set } of sets) if (!used.includes(set)) await dropVectors(session, { number }, set)
}

async function writeAnew(session: Session, table: string): Promise<void> {
  if (await isThere(session, table)) await session.run(`VACUUM FULL ${table}`)
}

/** `tables`: of the same chunks. */
async function dropEmpty(session: Session, tables: string[]): Promise<void> {
  for (const table of tables) {
    if (!(await isThere(session, table))) continue
    const [row] = await session.run<{ some: boolean }>(`SELECT EXISTS (SELECT FROM ${table}) AS some`)
    if (!row?.some) await session.run(`DROP TABLE ${table}`)
  }
}

async function isThere(session: Session, table: string): Promise<boolean> {
  const [row] = await session.run<{ yes: boolean }>('SELECT to_regclass($1) IS NOT NULL AS yes', [table])
  return row?.yes === true
}

/** Waits until nobody sees what was removed: as long as anybody does, PostgreSQL keeps it. */
async function awaitReaders(session: Session, removals: number[]): Promise<void> {
  for (;;) {
    const [row] = await session.run<{ some: boolean }>(
      `SELECT EXISTS (
         SELECT FROM pg_stat_activity, (SELECT max(removed_by)::xid AS xid FROM removals WHERE number = ANY ($1)) last
         WHERE pid <> pg_backend_pid() AND (age(backend_xmin) >= age(last.xid) OR age(backend_xid) >= age(last.xid))
       ) AS some`,
      [removals],
    )
    if (!row?.some) return
    await delay(looksEveryMs)
  }
}

async function emptyLog(session: Session): Promise<void> {
  await session.run('SELECT pg_switch_wal()')
  await session.run('CHECKPOINT')
}
