import { Pool, type PoolClient, TypeOverrides } from 'pg'
import { StoreError } from '../errors.ts'
import { pgFaultOf } from './errors.ts'
import { database, superuser } from './postgres.ts'

const mostSessions = 8
const int8 = 20

export type Row = Record<string, unknown>

/** One session, for as long as it is lent. */
export interface Session {
  /** The rows. */
  run<R = Row>(sql: string, values?: unknown[]): Promise<R[]>
}

/** Sessions with PostgreSQL. Rejects with StoreErrors where the database is to blame. */
export class Sessions {
  readonly #pool: Pool

  constructor(host: string) {
    const types = new TypeOverrides()
    types.setTypeParser(int8, Number) // counts and numbers are all below 2 ** 53
    this.#pool = new Pool({ host, user: superuser, database, max: mostSessions, types })
    this.#pool.on('error', () => {}) // an idle session has ended: the next one is new
  }

  /** Outside of a transaction, as VACUUM and CHECKPOINT need it. */
  async alone<T>(work: (session: Session) => Promise<T>): Promise<T> {
    const client = await this.#lend()
    try {
      const result = await work(sessionOf(client))
      client.release()
      return result
    } catch (error) {
      // After a refusal of our own, the session is as good as before.
      client.release(!(error instanceof StoreError))
      throw pgFaultOf(error)
    }
  }

  /** All of the work, or nothing if it throws. */
  inTransaction<T>(work: (session: Session) => Promise<T>): Promise<T> {
    return this.#within('BEGIN', work)
  }

  /** All queries of the work see the same moment. */
  atOneMoment<T>(work: (session: Session) => Promise<T>): Promise<T> {
    return this.#within('BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY', work)
  }

  async close(): Promise<void> {
    await this.#pool.end()
  }

  async #within<T>(begin: string, work: (session: Session) => Promise<T>): Promise<T> {
    const client = await this.#lend()
    try {
      await client.query(begin)
      const result = await work(sessionOf(client))
      await client.query('COMMIT')
      client.release()
      return result
    } catch (error) {
      const isBack = await client.query('ROLLBACK').then(
        () => true,
        () => false,
      )
      client.release(!isBack)
      throw pgFaultOf(error)
    }
  }

  async #lend(): Promise<PoolClient> {
    try {
      const client = await this.#pool.connect()
      // Lent sessions report their end to the pool's users as well: the query under way rejects.
      if (client.listenerCount('error') === 0) client.on('error', () => {})
      return client
    } catch (error) {
      throw pgFaultOf(error)
    }
  }
}

const sessionOf = (client: PoolClient): Session => ({
  async run<R>(sql: string, values?: unknown[]): Promise<R[]> {
    const { rows } = await client.query(sql, values)
    return rows as R[]
  },
})

/** A vector in the binary form of pgvector: dimensions, an unused field, and float32 values, big-endian. */
export function vectorBytes(vector: Float32Array): Buffer {
  const bytes = Buffer.alloc(4 + 4 * vector.length)
  bytes.writeInt16BE(vector.length, 0)
  for (const [index, value] of vector.entries()) bytes.writeFloatBE(value, 4 + 4 * index)
  return bytes
}

/** `vector[]` in PostgreSQL's binary form. `type`: the number of `vector` in this database. */
export function vectorsBytes(type: number, vectors: Float32Array[]): Buffer {
  const head = Buffer.alloc(20)
  head.writeInt32BE(1, 0) // dimensions of the array; no nulls
  head.writeInt32BE(type, 8)
  head.writeInt32BE(vectors.length, 12)
  head.writeInt32BE(1, 16)
  const parts = vectors.flatMap((vector) => {
    const bytes = vectorBytes(vector)
    const length = Buffer.alloc(4)
    length.writeInt32BE(bytes.length)
    return [length, bytes]
  })
  return Buffer.concat([head, ...parts])
}
