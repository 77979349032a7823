import { request } from 'node:https'
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

/** Asks a published database for a 1. `ca`: another authority than its certificate. */
export const askOutside = (
  database: DatabaseBody,
  { ca = database.tls_certificate_pem }: { ca?: string } = {},
): Promise<string> =>
  clients[database.type as keyof typeof clients](new URL(database.public_connection_string ?? ''), {
    ca,
    servername: database.tls_server_name,
  })
