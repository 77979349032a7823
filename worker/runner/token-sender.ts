import { setTimeout as delay } from 'node:timers/promises'
import type { Tokens } from '../../activities/runner/work.ts'
import type { RunToken } from '../../lib/runner-protocol.ts'

/** Sends tokens of a run. */
type Send = (run: string, tokens: RunToken[]) => Promise<void>

const usual = { everyMs: 100, batchBytes: 16 * 1024, mostBytes: 128 * 1024 }

interface Batch {
  tokens: RunToken[]
  bytes: number
  sent: PromiseWithResolvers<void>
}

/**
 * Sends what models say to those who watch, in batches, one at a time for the whole runner: its other requests come first.
 * Tokens that cannot be sent are lost, and so is what comes while more than `mostBytes` of a run wait: the node has its output
 * nevertheless.
 */
export function makeTokenSender(send: Send, { everyMs, batchBytes, mostBytes } = usual): Tokens {
  const waiting = new Map<string, Batch>()
  /** The runs that do not wait for the next time. */
  const urgent = new Set<string>()
  let underWay: { run: string; batch: Batch } | null = null
  let isWorking = false
  let hurry = Promise.withResolvers<void>()

  async function work(): Promise<void> {
    while (waiting.size > 0) {
      if (urgent.size === 0) await Promise.race([delay(everyMs), hurry.promise])
      hurry = Promise.withResolvers<void>()
      const next = urgent.size > 0 ? urgent : waiting.keys()
      for (const run of Array.from(next)) await sendOf(run)
    }
    isWorking = false
  }

  async function sendOf(run: string): Promise<void> {
    const batch = waiting.get(run)
    waiting.delete(run)
    urgent.delete(run)
    if (!batch) return
    underWay = { run, batch }
    await send(run, batch.tokens).catch(() => {}) // they are lost
    underWay = null
    batch.sent.resolve()
  }

  function sendSoon(run: string): void {
    urgent.add(run)
    hurry.resolve()
  }

  return {
    say(run, token) {
      const batch = waiting.get(run) ?? { tokens: [], bytes: 0, sent: Promise.withResolvers<void>() }
      const bytes = Buffer.byteLength(token.text)
      if (batch.bytes + bytes > mostBytes) return
      waiting.set(run, batch)
      batch.bytes += bytes
      const last = batch.tokens.at(-1)
      if (last && isSameText(last, token)) last.text += token.text
      else batch.tokens.push({ ...token })
      if (batch.bytes >= batchBytes) sendSoon(run)
      if (isWorking) return
      isWorking = true
      void work()
    },

    async sent(run) {
      if (waiting.has(run)) sendSoon(run)
      const batch = waiting.get(run) ?? (underWay?.run === run ? underWay.batch : null)
      await batch?.sent.promise
    },

    async take(run, node) {
      if (underWay?.run === run) await underWay.batch.sent.promise // it may have the node's first ones
      const batch = waiting.get(run)
      if (!batch) return []
      const { its = [], others = [] } = Object.groupBy(batch.tokens, (one) =>
        one.node === node ? 'its' : 'others',
      )
      batch.tokens = others
      batch.bytes -= its.reduce((sum, { text }) => sum + Buffer.byteLength(text), 0)
      if (others.length > 0) return its
      waiting.delete(run)
      urgent.delete(run)
      batch.sent.resolve()
      return its
    },
  }
}

const isSameText = (one: RunToken, other: RunToken): boolean =>
  one.node === other.node && one.attempt === other.attempt && one.call === other.call
