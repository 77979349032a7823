import { EventEmitter, once } from 'node:events'
import { setTimeout as delay } from 'node:timers/promises'
import type { SignOfLife } from '../../lib/host-protocol.ts'
import type { Logger } from '../../lib/log.ts'
import { makeBackoff } from '../retry.ts'

// The platform takes a host for unreachable after 30 s of silence, and then moves what it can to other hosts. So nothing
// that can get stuck, such as an engine, may delay a sign of life.

const everyMs = 10_000
const pingEveryMs = 2_000
// A restart of the engine takes less. A busy engine answers a ping at once.
const silentAfterMs = 10_000

/** Whether an engine answers. */
export interface EngineWatch {
  /** For how long it has not answered; null while it does, and for the first 10 s. */
  silentMs(): number | null
  /** Asks it regularly, until aborted. Calls back when it falls silent, and when it answers again. */
  keep(onTurn: () => void, signal: AbortSignal): Promise<void>
}

/** `ping` rejects if the engine does not answer before its signal aborts. */
export function watchEngine(ping: (signal: AbortSignal) => Promise<void>, log: Logger): EngineWatch {
  let unansweredSince: number | null = null
  const silentMs = (): number | null => {
    const ms = unansweredSince === null ? 0 : Math.round(performance.now() - unansweredSince)
    return ms >= silentAfterMs ? ms : null
  }
  return {
    silentMs,
    async keep(onTurn, signal) {
      let wasSilent = false
      while (!signal.aborted) {
        const asked = performance.now()
        const answers = await ping(AbortSignal.any([signal, AbortSignal.timeout(silentAfterMs)])).then(
          () => true,
          () => false,
        )
        if (signal.aborted) return
        unansweredSince = answers ? null : (unansweredSince ?? asked)
        const isSilent = silentMs() !== null
        if (isSilent !== wasSilent) {
          if (isSilent) log.warn('the engine does not answer')
          else log.info('the engine answers again')
          onTurn()
        }
        wasSilent = isSilent
        await delay(pingEveryMs, undefined, { signal }).catch(() => undefined)
      }
    },
  }
}

interface Settings {
  engine: EngineWatch
  send: (sign: SignOfLife) => Promise<void>
  log: Logger
}

/** Sends a sign of life every 10 s, and when the engine falls silent or answers again, until aborted. */
export async function keepAlive({ engine, send, log }: Settings, signal: AbortSignal): Promise<void> {
  const news = new EventEmitter<{ turn: [] }>()
  const watching = engine.keep(() => news.emit('turn'), signal)
  const backoff = makeBackoff()
  while (!signal.aborted) {
    try {
      const due = AbortSignal.any([signal, AbortSignal.timeout(everyMs)])
      const turned = once(news, 'turn', { signal: due }).catch(() => undefined)
      await send({ engine_silent_ms: engine.silentMs() })
      backoff.reset()
      await turned
    } catch (error) {
      if (signal.aborted) break
      log.warn({ err: error }, 'no sign of life arrived; trying again')
      await backoff.wait(signal)
    }
  }
  await watching
}
