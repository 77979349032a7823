import { request } from 'node:https'
import { connect as connectPlainly } from 'node:net'
import { text } from 'node:stream/consumers'
import { connect } from 'node:tls'
import { MongoClient } from 'mongodb'
import { createConnection } from 'mysql2/promise'
import { Client } from 'pg'
import type { DatabaseBody } from './clients/databases.ts'

// Clients outside of a deploy server, which trust a database by its certificate alone.

interface Trust {
  ca: string
  servername: string
}
type Asks = (url: URL, trust: Trust) => Promise<string>

/** Ask a database for a 1, and return the answer. */
const clients = {
  postgresql: async ({ username: user, password, hostname: host, port, pathname }, ssl) => {
    const database = pathname.slice(1)
    const client = new Client({ user, password, host, port: Number(port), database, ssl })
    await client.connect()
    try {
      const { rows } = await client.query<{ one: number; ssl: boolean }>(
        'SELECT 1 AS one, ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()',
      )
      return `${rows[0]?.one} ${rows[0]?.ssl ? 'by TLS' : 'plain'}`
    } finally {
      await client.end()
    }
  },
  mariadb: async ({ username: user, password, hostname: host, port, pathname }, { ca }) => {
    const database = pathname.slice(1)
    const connection = await createConnection({
      user,
      password,
      host,
      port: Number(port),
      database,
      ssl: { ca },
    })
    try {
      const [rows] = await connection.query("SHOW STATUS LIKE 'Ssl_cipher'")
      return `1 ${(rows as { Value: string }[])[0]?.Value ? 'by TLS' : 'plain'}`
    } finally {
      await connection.end()
    }
  },
  mongodb: async (url, { ca, servername }) => {
    const client = new MongoClient(url.href, { ca, servername, directConnection: true })
    try {
      const { ok } = await client.db().command({ ping: 1 })
      return `${String(ok)} by TLS`
    } finally {
      await client.close()
    }
  },
  redis: ({ password, hostname: host, port }, trust) =>
    new Promise((resolve, reject) => {
      let said = ''
      const socket = connect({ host, port: Number(port), ...trust }, () =>
        socket.write(`AUTH default ${password}\r\nECHO 1\r\n`),
      )
      socket.once('error', reject).once('close', () => reject(new Error(`closed after ${said}`)))
      socket.on('data', (data) => {
        said += String(data)
        if (!said.endsWith('1\r\n')) return
        resolve(`${said.replaceAll('\r\n', ' ')}by TLS`)
        socket.destroy()
      })
    }),
  clickhouse: (url, trust) =>
    new Promise((resolve, reject) => {
      const { username, password, hostname: host, port } = url
      const path = `/?query=${encodeURIComponent('SELECT 1')}`
      const auth = `${username}:${password}`
      // A connection that is kept outlives its listener.
      request({ host, port, path, auth, agent: false, ...trust }, (answer) => {
        resolve(text(answer).then((body) => `${body.trim()} by TLS`))
      })
        .once('error', reject)
        .end()
    }),
} satisfies Record<string, Asks>

/** Clients without TLS. Each rejects, or resolves with `plain` if it was served. */
const plainClients: Record<keyof typeof clients, (url: URL) => Promise<string>> = {
  postgresql: async ({ username: user, password, hostname: host, port, pathname }) => {
    const client = new Client({ user, password, host, port: Number(port), database: pathname.slice(1) })
    await client.connect()
    await client.end()
    return 'plain'
  },
  mariadb: async ({ username: user, password, hostname: host, port, pathname }) => {
    const database = pathname.slice(1)
    const connection = await createConnection({ user, password, host, port: Number(port), database })
    await connection.end()
    return 'plain'
  },
  mongodb: async ({ host, username, password, pathname }) => {
    const url = `mongodb://${username}:${password}@${host}${pathname}?authSource=admin`
    const client = new MongoClient(url, { directConnection: true, serverSelectionTimeoutMS: 3000 })
    try {
      await client.db().command({ ping: 1 })
      return 'plain'
    } finally {
      await client.close()
    }
  },
  redis: (url) => plainAnswer(url, `AUTH default ${url.password}\r\nECHO 1\r\n`),
  clickhouse: (url) => plainAnswer(url, `GET /ping HTTP/1.1\r\nHost: ${url.host}\r\n\r\n`),
}

const tlsAlert = 0x15

/** Sends a first request as it is. Rejects if the connection ends without an answer. */
const plainAnswer = ({ hostname: host, port }: URL, said: string): Promise<string> =>
  new Promise((resolve, reject) => {
    const socket = connectPlainly({ host, port: Number(port) }, () => socket.write(said))
    socket.once('data', (data) => {
      if (data[0] === tlsAlert) reject(new Error('answered by a TLS alert'))
      else resolve('plain')
      socket.destroy()
    })
    socket.once('error', reject).once('close', () => reject(new Error('closed without an answer')))
  })

/** Asks a published database as a client that knows of no TLS. */
export const askPlainly = (database: DatabaseBody): Promise<string> =>
  plainClients[database.type as keyof typeof clients](new URL(database.public_connection_string ?? ''))

/** Asks a published database for a 1. `ca`: another authority than its certificate. */
export const askOutside = (
  database: DatabaseBody,
  { ca = database.tls_certificate_pem }: { ca?: string } = {},
): Promise<string> =>
  clients[database.type as keyof typeof clients](new URL(database.public_connection_string ?? ''), {
    ca,
    servername: database.tls_server_name,
  })
