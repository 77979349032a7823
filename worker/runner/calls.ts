import type { CallEnd, CallingApi } from '../../activities/runner/work.ts'
import { makeQueue } from '../../lib/queue.ts'
import type { CallState } from '../../lib/runner-calls.ts'

/** Asks the API once how a call stands. It waits for so long for the call's end. */
export type AskCall = (path: string, body: object, signal: AbortSignal) => Promise<CallState>

/** A quick call ends within its first request. */
const firstWaitMs = 500
/** Other requests of the runner are not to wait for those that wait for a call. */
const waitsAtOnce = 4
const wait = { usualMs: 5_000, busyMs: 1_000 }

const pathOf = (run: string, node: string, what: string, attempt: number): string =>
  `runs/${run}/nodes/${node}/${what}?attempt=${attempt}`

/** Calls that the API makes for a runner: each is asked for until it has ended. */
export function makeCalls(ask: AskCall): CallingApi {
  const inTurn = makeQueue(waitsAtOnce)
  let waiting = 0

  async function untilEnd(path: string, asked: object, signal: AbortSignal): Promise<CallEnd> {
    const first = await ask(path, { ...asked, wait_ms: firstWaitMs }, signal)
    if (first.state !== 'open') return first
    waiting++
    try {
      for (;;) {
        const state = await inTurn(() => {
          const wait_ms = waiting > waitsAtOnce ? wait.busyMs : wait.usualMs
          return ask(path, { ...asked, wait_ms }, signal)
        }, signal)
        if (state.state !== 'open') return state
      }
    } finally {
      waiting--
    }
  }

  return {
    callHttp: (run, node, attempt, asked, signal) =>
      untilEnd(pathOf(run, node, 'http', attempt), asked, signal),
    callTool: (run, node, attempt, asked, signal) =>
      untilEnd(pathOf(run, node, 'tool', attempt), asked, signal),
    offeredTools: (run, node, attempt, asked, signal) =>
      untilEnd(pathOf(run, node, 'tools', attempt), asked, signal),
  }
}
