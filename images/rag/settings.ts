import { readFileSync } from 'node:fs'
import { isIP } from 'node:net'
import type { Tls } from './server.ts'

export interface Secrets {
  token: string
  tls: Tls | null
}

export const engines = ['sqlite', 'pgvector'] as const

export interface Settings {
  engine: (typeof engines)[number]
  /** The folder of PostgreSQL's programs, for pgvector. */
  programs: string
  folder: string
  host: string
  port: number
  /** The path of a Unix socket that serves this container's processes without a token. */
  socket: string | null
  /** The user and group as which a store that root started goes on; null: it stays as it is. */
  user: number | null
  mostBodyBytes: number
  mostChunks: number
  mostCollections: number
  /** The secrets of the environment, or those that the files have now. Throws if they cannot be used. */
  secrets: () => Secrets
}

const leastToken = 32
const defaultPort = 8_700
/** One has a code of each chunk in memory. */
const mostChunks = { sqlite: 500_000, pgvector: 10_000_000 }

/**
 * The settings of the container. Removes secrets from `env`. Throws, with a sentence for its operator, if callers without the
 * token could use the store or read its traffic.
 */
export function readSettings(env: NodeJS.ProcessEnv): Settings {
  const [token, cert, key] = ['RAG_TOKEN', 'RAG_TLS_CERT', 'RAG_TLS_KEY'].map((name) => takeSecret(env, name))
  const host = env['RAG_HOST'] ?? '127.0.0.1'
  const engine = engines.find((one) => one === (env['RAG_ENGINE'] ?? 'sqlite'))
  if (!engine) throw new Error(`RAG_ENGINE has to be one of ${engines.join(', ')}`)
  if (!isIP(host)) throw new Error('RAG_HOST has to be an IP address of this machine')
  if (!token) throw new Error('Set RAG_TOKEN, or RAG_TOKEN_FILE to a file with the token')
  if (Boolean(cert) !== Boolean(key)) throw new Error('The certificate and the key of TLS go together')
  if (!cert && host !== '127.0.0.1' && host !== '::1')
    throw new Error('Others could read the traffic: set RAG_TLS_CERT and RAG_TLS_KEY, or their files')
  return {
    engine,
    programs: env['RAG_POSTGRESQL'] ?? '/usr/lib/postgresql/17/bin',
    folder: env['RAG_FOLDER'] ?? '/data',
    host,
    port: countOf(env, 'RAG_PORT', defaultPort),
    socket: env['RAG_SOCKET'] || null,
    user: env['RAG_USER'] ? countOf(env, 'RAG_USER', 0) : null,
    mostBodyBytes: countOf(env, 'RAG_BODY_MIB', 64) * 1024 ** 2,
    mostChunks: countOf(env, 'RAG_MOST_CHUNKS', mostChunks[engine]),
    mostCollections: countOf(env, 'RAG_MOST_COLLECTIONS', 100),
    secrets: () => ({
      token: checkToken(token()),
      tls: cert && key ? { cert: cert(), key: key() } : null,
    }),
  }
}

/** From the variable `name`, which processes that this one starts would inherit, or the file that `name`_FILE names. */
function takeSecret(env: NodeJS.ProcessEnv, name: string): (() => string) | null {
  const { [name]: value, [`${name}_FILE`]: file } = env
  delete env[name]
  if (value !== undefined && file) throw new Error(`${name} and ${name}_FILE are both set: set one of them`)
  if (file) return () => readFileSync(file, 'utf8')
  return value === undefined ? null : () => value
}

function checkToken(given: string): string {
  const token = given.trim()
  if (token.length < leastToken || /\s/.test(token))
    throw new Error(`The token has to be one word of at least ${leastToken} characters`)
  return token
}

function countOf(env: NodeJS.ProcessEnv, name: string, otherwise: number): number {
  const value = Number(env[name] ?? otherwise)
  if (!Number.isSafeInteger(value) || value < 0) throw new Error(`${name} has to be a whole number`)
  return value
}
