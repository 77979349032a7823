import { createServer } from 'node:net'

/** @throws if another program listens on one of them, which would otherwise look like a crashing role. */
export async function checkPorts(ports: number[]): Promise<void> {
  for (const port of ports) {
    const probe = createServer()
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    const taken = new Error(`port ${port} is in use; choose others: script/server --port-base 21000`)
    probe.once('error', () => reject(taken))
    probe.listen(port, '127.0.0.1', resolve)
    await promise
    probe.close()
  }
}
