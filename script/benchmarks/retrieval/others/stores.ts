import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { setTimeout as delay } from 'node:timers/promises'
import { Agent, request } from 'undici'
import { bytesOf } from '../../../../images/rag/vectors.ts'
import { freePort } from '../../../lib/free-port.ts'
import { installedChroma, installedNpm, titles } from './installed.ts'

/** A store of vectors beside which ours is measured. Its numbers for vectors are their places. */
export interface OtherStore {
  title: string
  /** How it is asked. */
  where: string
  /** In this process. */
  isHere: boolean
  /** So many vectors at once, each with a text. */
  add(from: number, vectors: Float32Array[], texts: string[]): Promise<void>
  /** The nearest ten. */
  search(vector: Float32Array): Promise<number[]>
  close(): Promise<void>
}

const dimensions = 384
const most = 10

/** Exact search of a table in a file, in this process. */
export async function openSqliteVec(): Promise<OtherStore> {
  const load = createRequire(join(await installedNpm(), 'package.json'))
  const { getLoadablePath } = load('sqlite-vec') as { getLoadablePath: () => string }
  const folder = await mkdtemp(join(tmpdir(), 'keelson-bench-sqlite-vec-'))
  const database = new DatabaseSync(join(folder, 'vectors.db'), { allowExtension: true })
  database.loadExtension(getLoadablePath())
  database.exec(`PRAGMA journal_mode = WAL;
    CREATE VIRTUAL TABLE vectors USING vec0(vector float[${dimensions}] distance_metric=cosine);
    CREATE TABLE texts (id INTEGER PRIMARY KEY, text TEXT NOT NULL)`)
  const addVector = database.prepare('INSERT INTO vectors (rowid, vector) VALUES (?, ?)')
  const addText = database.prepare('INSERT INTO texts VALUES (?, ?)')
  const find = database.prepare(
    `SELECT rowid, text FROM vectors JOIN texts ON texts.id = vectors.rowid WHERE vector MATCH ? AND k = ${most}`,
  )
  return {
    title: titles.sqliteVec,
    where: 'in this process',
    isHere: true,
    async add(from, vectors, texts) {
      database.exec('BEGIN')
      for (const [index, vector] of vectors.entries()) {
        addVector.run(BigInt(from + index), bytesOf(vector))
        addText.run(from + index, texts[index] as string)
      }
      database.exec('COMMIT')
    },
    search: async (vector) => find.all(bytesOf(vector)).map(({ rowid }) => Number(rowid)),
    async close() {
      database.close()
      await rm(folder, { recursive: true })
    },
  }
}

interface Usearch {
  Index: new (
    of: object,
  ) => {
    add(keys: BigUint64Array, vectors: Float32Array, threads?: number): void
    search(vector: Float32Array, count: number, threads?: number): { keys: BigUint64Array }
  }
}

/** A graph in the memory of this process: no file, no texts. */
export async function openUsearch(): Promise<OtherStore> {
  const load = createRequire(join(await installedNpm(), 'package.json'))
  const { Index } = load('usearch') as Usearch
  const index = new Index({ dimensions, metric: 'cos', quantization: 'f32', connectivity: 16 })
  return {
    title: titles.usearch,
    where: 'in memory of this process, without texts',
    isHere: true,
    async add(from, vectors) {
      const all = new Float32Array(vectors.length * dimensions)
      for (const [at, vector] of vectors.entries()) all.set(vector, at * dimensions)
      const keys = BigUint64Array.from(vectors, (_, at) => BigInt(from + at))
      index.add(keys, all, 1)
    },
    search: async (vector) => Array.from(index.search(vector, most, 1).keys, Number),
    close: async () => {},
  }
}

const startsWithinMs = 120_000

/** A server, by HTTP without TLS. */
export async function openChroma(): Promise<OtherStore> {
  const program = join(await installedChroma(), 'bin/chroma')
  const folder = await mkdtemp(join(tmpdir(), 'keelson-bench-chroma-'))
  const port = await freePort()
  const child = spawn(program, ['run', '--path', folder, '--host', '127.0.0.1', '--port', String(port)], {
    cwd: folder,
    env: { PATH: process.env['PATH'], ANONYMIZED_TELEMETRY: 'False' },
    stdio: 'ignore',
  })
  const agent = new Agent({ connections: 1, headersTimeout: startsWithinMs, bodyTimeout: startsWithinMs })
  const root = `http://127.0.0.1:${port}/api/v2/tenants/default_tenant/databases/default_database/collections`
  const ask = async (path: string, body: object): Promise<unknown> => {
    const answer = await request(`${root}${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
      dispatcher: agent,
    })
    const text = await answer.body.text()
    if (answer.statusCode >= 300) throw new Error(`Chroma says ${answer.statusCode}: ${text.slice(0, 300)}`)
    return text ? JSON.parse(text) : null
  }
  const close = async (): Promise<void> => {
    await agent.close()
    if (child.exitCode === null && child.signalCode === null) {
      child.kill()
      await once(child, 'exit')
    }
    await rm(folder, { recursive: true })
  }
  const make = () =>
    ask('', { name: 'bench', metadata: { 'hnsw:space': 'cosine' } }) as Promise<{ id: string }>
  try {
    const { id } = await untilUp(make)
    return {
      title: titles.chroma,
      where: 'by HTTP',
      isHere: false,
      async add(from, vectors, texts) {
        const ids = vectors.map((_, at) => String(from + at))
        await ask(`/${id}/add`, { ids, embeddings: vectors.map((one) => [...one]), documents: texts })
      },
      async search(vector) {
        const asked = {
          query_embeddings: [[...vector]],
          n_results: most,
          include: ['documents', 'distances'],
        }
        const { ids } = (await ask(`/${id}/query`, asked)) as { ids: string[][] }
        return (ids[0] ?? []).map(Number)
      },
      close,
    }
  } catch (error) {
    await close()
    throw error
  }
}

async function untilUp<T>(work: () => Promise<T>): Promise<T> {
  const until = Date.now() + startsWithinMs
  for (;;) {
    try {
      return await work()
    } catch (error) {
      if (Date.now() > until) throw error
      await delay(250)
    }
  }
}
