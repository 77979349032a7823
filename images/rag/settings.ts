import { readFileSync } from 'node:fs'
import { isIP } from 'node:net'
import type { Tls } from './server.ts'

export interface Settings {
  folder: string
  host: string
  port: number
  mostBodyBytes: number
  mostChunks: number
  mostCollections: number
  /** Reads the files of secrets anew. Throws if they cannot be used. */
  secrets: () => { token: string; tls: Tls | null }
}

const leastToken = 32
const defaultPort = 8_700

/**
 * The settings of the container. Throws, with a sentence for its operator, if callers without the token could use the store or
 * read its traffic.
 */
export function readSettings(env: NodeJS.ProcessEnv): Settings {
  const host = env['RAG_HOST'] ?? '127.0.0.1'
  if (!isIP(host)) throw new Error('RAG_HOST has to be an IP address of this machine')
  const { RAG_TOKEN_FILE: tokenFile, RAG_TLS_CERT_FILE: certFile, RAG_TLS_KEY_FILE: keyFile } = env
  if (!tokenFile) throw new Error('RAG_TOKEN_FILE has to name a file with the token')
  if (Boolean(certFile) !== Boolean(keyFile))
    throw new Error('RAG_TLS_CERT_FILE and RAG_TLS_KEY_FILE go together')
  if (!certFile && host !== '127.0.0.1' && host !== '::1')
    throw new Error('Others could read along: set RAG_TLS_CERT_FILE and RAG_TLS_KEY_FILE')
  return {
    folder: env['RAG_FOLDER'] ?? '/data',
    host,
    port: countOf(env, 'RAG_PORT', defaultPort),
    mostBodyBytes: countOf(env, 'RAG_BODY_MIB', 64) * 1024 ** 2,
    mostChunks: countOf(env, 'RAG_MOST_CHUNKS', 500_000),
    mostCollections: countOf(env, 'RAG_MOST_COLLECTIONS', 100),
    secrets: () => ({
      token: readToken(tokenFile),
      tls:
        certFile && keyFile
          ? { cert: readFileSync(certFile, 'utf8'), key: readFileSync(keyFile, 'utf8') }
          : null,
    }),
  }
}

function readToken(file: string): string {
  const token = readFileSync(file, 'utf8').trim()
  if (token.length < leastToken || /\s/.test(token))
    throw new Error(`The file of RAG_TOKEN_FILE has to have one token of at least ${leastToken} characters`)
  return token
}

function countOf(env: NodeJS.ProcessEnv, name: string, otherwise: number): number {
  const value = Number(env[name] ?? otherwise)
  if (!Number.isSafeInteger(value) || value < 0) throw new Error(`${name} has to be a whole number`)
  return value
}
