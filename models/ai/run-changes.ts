import { EventEmitter } from 'node:events'
import { onChange } from '../changes.ts'
import { AiRunNode } from './run-node-records.ts'
import { AiRunTokens } from './run-tokens.ts'
import { AiRun } from './runs.ts'

// The changes of runs, for those who watch one: of itself, its nodes and its tokens. They say only that something has
// changed, and the watcher reads it.

/** What may have changed. */
export interface Changes {
  /** The run, or one of its nodes. */
  state: boolean
  tokens: boolean
}

// The change stream may have missed something while it was interrupted.
const lookEveryMs = 5_000

const heard = new EventEmitter({ captureRejections: true }).setMaxListeners(0)

/** All ids begin with the run's. */
const hearing = (part: Changes) => (id: string) => void heard.emit(id.split('/')[0] ?? '', part)
onChange(AiRun, hearing({ state: true, tokens: false }))
onChange(AiRunNode, hearing({ state: true, tokens: false }))
onChange(AiRunTokens, hearing({ state: false, tokens: true }))

const nobody = (): void => {}

/**
 * Hears of a run's changes, until aborted. Yields at once, and then after changes, those together that come while the watcher is
 * at work.
 */
export async function* changesOf(run: string, signal: AbortSignal): AsyncGenerator<Changes> {
  let news: Changes = { state: true, tokens: true }
  let wake = nobody
  const hear = ({ state, tokens }: Changes): void => {
    news = { state: news.state || state, tokens: news.tokens || tokens }
    wake()
  }
  const look = setInterval(() => hear({ state: true, tokens: true }), lookEveryMs)
  const stop = (): void => wake()
  heard.on(run, hear)
  signal.addEventListener('abort', stop, { once: true })
  try {
    while (!signal.aborted) {
      if (!news.state && !news.tokens) await new Promise<void>((resolve) => (wake = resolve))
      if (signal.aborted) return
      const now = news
      news = { state: false, tokens: false }
      yield now
    }
  } finally {
    clearInterval(look)
    signal.removeEventListener('abort', stop)
    heard.off(run, hear)
  }
}
