import { setTimeout as delay } from 'node:timers/promises'
import type Docker from 'dockerode'
import { z } from 'zod'
import { unless } from './errors.ts'
import { labels, ours } from './spec.ts'
import { jsonLines, openStream } from './streams.ts'

const EngineEvent = z.object({
  Action: z.string(),
  Actor: z.object({ Attributes: z.record(z.string(), z.string()) }),
})

const firstRetryMs = 100
const lastRetryMs = 5_000

/** Calls back with the id at each change and with null at each connection. Reconnects with backoff until aborted. */
export async function watchContainers(
  docker: Docker,
  hostId: string,
  onChange: (id: string | null) => void,
  signal: AbortSignal,
): Promise<void> {
  let retryMs = firstRetryMs
  while (!signal.aborted) {
    try {
      const stream = await openEvents(docker, { label: ours(hostId) }, signal)
      onChange(null)
      retryMs = firstRetryMs
      for await (const event of jsonLines(stream, EngineEvent)) {
        const id = event.Actor.Attributes[labels.resource]
        // Commands in a container, such as health checks, do not change the container.
        if (id !== undefined && !event.Action.startsWith('exec_')) onChange(id)
      }
    } catch {
      // The engine is away. The loop reconnects, and the null callback reports it.
    }
    await delay(retryMs, undefined, { signal }).catch(() => undefined)
    retryMs = Math.min(retryMs * 2, lastRetryMs)
  }
}

/** Waits until a stopped container starts. False if it is removed or the signal aborts. */
export async function startsAgain(docker: Docker, engineId: string, signal?: AbortSignal): Promise<boolean> {
  const events = await openEvents(docker, { container: [engineId], event: ['start', 'destroy'] }, signal)
  try {
    // It may have started before the event stream was open.
    const info = await unless([404], docker.getContainer(engineId).inspect())
    if (!info) return false
    if (info.State.Running && !info.State.Restarting) return true
    const next = await jsonLines(events, EngineEvent).next()
    return !next.done && next.value.Action === 'start'
  } finally {
    events.destroy()
  }
}

// The engine answers slightly before it delivers events; `since` covers the gap.
function openEvents(docker: Docker, filters: Record<string, string[]>, signal?: AbortSignal) {
  const query = { since: String(Date.now() / 1000), filters: { ...filters, type: ['container'] } }
  return openStream(docker, 'GET', '/events', query, signal)
}
