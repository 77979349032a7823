import { once } from 'node:events'
import type { RunApi } from '../../activities/runner/work.ts'
import type { ModelGrant } from '../../lib/runner-protocol.ts'

// Tokens for calls of models. One is good for all calls of its run and model, so it is asked for once, and not for each call.

/** A token lasts 15 minutes (models/llm/tokens.ts). */
const usedForMs = 300_000
/** Of the runs that asked last. */
const most = 1_000

/** Waits for another's answer as long as nobody aborts this wait. */
async function heard<T>(answer: Promise<T>, signal: AbortSignal): Promise<T> {
  signal.throwIfAborted()
  const over = new AbortController()
  const aborted = once(signal, 'abort', { signal: over.signal }).catch(() => {})
  try {
    const first = await Promise.race([answer, aborted.then(() => null)])
    signal.throwIfAborted()
    return first as T
  } finally {
    over.abort()
  }
}

/** Asks for a token only if none is known. A token that was refused is forgotten. */
export function rememberGrants(
  ask: RunApi['modelGrant'],
  now: () => number = Date.now,
): RunApi['modelGrant'] {
  const known = new Map<string, { grant: ModelGrant; untilMs: number }>()
  const underWay = new Map<string, Promise<ModelGrant>>()

  function remember(key: string, grant: ModelGrant, untilMs: number): ModelGrant {
    known.delete(key) // so that it becomes the latest
    known.set(key, { grant, untilMs })
    const [oldest] = known.keys()
    if (known.size > most && oldest !== undefined) known.delete(oldest)
    return grant
  }

  return async (run, alias, signal, refused) => {
    const key = `${run}/${alias}`
    const found = known.get(key)
    if (found && found.untilMs > now() && found.grant.token !== refused) return found.grant
    const other = underWay.get(key)
    const early = other
      ? await heard(
          other.catch(() => null),
          signal,
        )
      : null // the one who asked may be cancelled
    if (early && early.token !== refused) return early
    const untilMs = now() + usedForMs
    const asked = ask(run, alias, signal)
      .then((grant) => remember(key, grant, untilMs))
      .finally(() => underWay.delete(key))
    underWay.set(key, asked)
    return asked
  }
}
