import { once } from 'node:events'
import { setTimeout as delay } from 'node:timers/promises'

// Node's inspector listens here after SIGUSR1 (https://nodejs.org/en/learn/getting-started/debugging).
const inspector = 'http://127.0.0.1:9229/json/list'

/**
 * What a Node process uses right after a garbage collection, in MiB: its heap and its buffers. Unlike resident memory, this
 * has no room that earlier work left.
 */
export async function usedMib(pid: number): Promise<number> {
  process.kill(pid, 'SIGUSR1')
  const socket = new WebSocket(await inspectorOf())
  await once(socket, 'open')
  try {
    const call = callsOver(socket)
    await call('HeapProfiler.collectGarbage')
    const expression = 'JSON.stringify({ pid: process.pid, ...process.memoryUsage() })'
    const { result } = await call<{ result: { value: string } }>('Runtime.evaluate', { expression })
    const { heapUsed = 0, external = 0, pid: asked = 0 } = JSON.parse(result.value) as Record<string, number>
    if (asked !== pid) throw new Error(`process ${asked} has the inspector’s port, not ${pid}`)
    return (heapUsed + external) / 2 ** 20
  } finally {
    socket.close()
  }
}

async function inspectorOf(): Promise<string> {
  for (;;) {
    const answer = await fetch(inspector).catch(() => undefined)
    if (!answer) {
      await delay(50)
      continue
    }
    const [target] = (await answer.json()) as { webSocketDebuggerUrl: string }[]
    if (target) return target.webSocketDebuggerUrl
  }
}

function callsOver(socket: WebSocket) {
  let last = 0
  return async <T>(method: string, params: object = {}): Promise<T> => {
    const id = ++last
    socket.send(JSON.stringify({ id, method, params }))
    for (;;) {
      const [event] = (await once(socket, 'message')) as [{ data: string }]
      const answer = JSON.parse(event.data) as { id?: number; result: T; error?: { message: string } }
      if (answer.error) throw new Error(answer.error.message)
      if (answer.id === id) return answer.result
    }
  }
}
