import { dirname } from 'node:path'
import { serve } from './server.ts'
import { readSettings } from './settings.ts'
import { becomeUser } from './user.ts'

// The store's container. SIGHUP reads token and certificate anew, if they are files; SIGTERM and SIGINT end it.

/** Less than what a container has to stop. */
const graceMs = 8_000

/** One line of JSON. Never a text, vector or token. */
function log(message: string, fields: object = {}): void {
  console.log(JSON.stringify({ time: new Date().toISOString(), message, ...fields }))
}

/** What may be logged of an error: its message may quote a text. */
const traceOf = (error: unknown): object => ({
  error: error instanceof Error ? error.name : typeof error,
  sqlite: (error as { errcode?: number }).errcode,
  code: (error as { code?: unknown }).code,
  stack: error instanceof Error ? error.stack?.split('\n').filter((line) => /^ +at /.test(line)) : undefined,
})

process.umask(0o077) // its files are for nobody else
const settings = readSettings(process.env)
// The token is read before anything is opened: without it the store does not start.
const secrets = settings.secrets()
// Its files are read first: they may be for root alone.
const open = await loadEngine()
if (settings.user !== null)
  becomeUser(settings.user, [settings.folder, ...(settings.socket ? [dirname(settings.socket)] : [])])
const store = open()
const server = await serve(store, {
  ...settings,
  ...secrets,
  onFault: (route, error) => log('a request failed', { route, ...traceOf(error) }),
})
log('listening', { host: settings.host, port: server.port })

process.on('SIGHUP', () => {
  try {
    server.renew(settings.secrets())
    log('token and certificate were read anew')
  } catch (error) {
    log('token and certificate stay: the new ones cannot be used', traceOf(error))
  }
})
for (const signal of ['SIGTERM', 'SIGINT'] as const) process.once(signal, () => void stop())

/** Loads one engine alone, since the image of the one lacks what the other needs. Returns what opens its store. */
async function loadEngine() {
  if (settings.engine === 'pgvector') {
    const { PgvectorStore } = await import('./pgvector/engine.ts')
    return () => new PgvectorStore(settings)
  }
  const { SqliteStore } = await import('./engine.ts')
  return () =>
    new SqliteStore({
      ...settings,
      onLost(reason) {
        log('the thread that writes has ended', { reason })
        process.exit(1)
      },
    })
}

async function stop(): Promise<void> {
  log('stopping')
  await server.close(graceMs)
  await store.close()
  log('stopped')
}

await store.ready()
log('ready')
