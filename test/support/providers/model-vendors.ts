import { once } from 'node:events'
import { createServer, type IncomingHttpHeaders } from 'node:http'
import { providerPorts } from '../stack.ts'

// Stand-ins of vendors of models: each takes its keys in its own header, and says whether it knows them.

/** How a vendor wants its key. */
const keyIn: Record<string, (headers: IncomingHttpHeaders) => string | undefined> = {
  anthropic: (headers) =>
    headers['anthropic-version'] === undefined ? undefined : (headers['x-api-key'] as string),
  google: (headers) => headers['x-goog-api-key'] as string,
  azure: (headers) => headers['api-key'] as string,
  custom: (headers) => headers['x-custom-key'] as string,
}
const bearer = ({ authorization }: IncomingHttpHeaders): string | undefined =>
  /^Bearer (.+)$/.exec(authorization ?? '')?.[1]

/** `port`: one of `providerPorts`. Asked for a model by its name, a vendor knows those of `models` alone. */
export async function startModelVendors(port: number = providerPorts.models, models: string[] = []) {
  const keys = new Set<string>()
  const paths: string[] = []
  let fails = 0
  const server = createServer((request, response) => {
    const path = request.url ?? ''
    paths.push(path)
    const [, vendor = ''] = path.split('/')
    const key = (keyIn[vendor] ?? bearer)(request.headers)
    const isKnown = key !== undefined && keys.has(key)
    const refusal = vendor === 'google' ? 400 : 401
    // An answer that repeats the key, as careless servers do.
    const [, , what, model] = path.split('/')
    const found = what === 'models' && model !== undefined && !models.includes(model) ? 404 : 200
    const status = fails || (isKnown || vendor === 'open' ? found : refusal)
    response.writeHead(status).end(JSON.stringify({ error: { message: `bad key ${key}` } }))
  })
  server.listen(port, '127.0.0.1')
  await once(server, 'listening')
  return {
    url: `http://127.0.0.1:${port}`,
    paths,
    accept: (key: string) => void keys.add(key),
    forget: (key: string) => void keys.delete(key),
    /** Answers everything with this status; 0: no longer. */
    fail: (status: number) => void (fails = status),
    async close(): Promise<void> {
      server.close()
      server.closeAllConnections()
      await once(server, 'close')
    },
  }
}
