import { EventEmitter } from 'node:events'
import { setTimeout } from 'node:timers/promises'
import mongoose from 'mongoose'
import type { Logger } from '../../lib/log.ts'
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

/** Watches all changes on one change stream per process, until aborted. */
export async function watchRunChanges(log: Logger, signal: AbortSignal): Promise<void> {
  const collections = [AiRun, AiRunNode, AiRunTokens].map(({ collection }) => collection.name)
  const ours = [{ $match: { 'ns.coll': { $in: collections } } }, { $project: { documentKey: 1, ns: 1 } }]
  const { db } = mongoose.connection
  if (!db) throw new Error('connectDatabase was not called')
  while (!signal.aborted) {
    const changes = db.watch<{ _id: string }>(ours)
    const close = () => void changes.close()
    signal.addEventListener('abort', close, { once: true })
    try {
      for await (const change of changes)
        if ('documentKey' in change && 'coll' in change.ns) tell(change.documentKey._id, change.ns.coll)
    } catch (error) {
      if (signal.aborted) return
      log.warn({ err: error }, 'the change stream of runs being watched broke; opening another')
      await setTimeout(500, undefined, { signal }).catch(() => undefined)
    } finally {
      signal.removeEventListener('abort', close)
      await changes.close()
    }
  }
}

/** All ids begin with the run's. */
function tell(id: string, collection: string): void {
  const [run = ''] = id.split('/')
  const isToken = collection === AiRunTokens.collection.name
  heard.emit(run, { state: !isToken, tokens: isToken } satisfies Changes)
}

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
