import { expect, test } from '@jest/globals'
import type { CallState } from '../../lib/runner-calls.ts'
import { makeCalls } from '../../worker/runner/calls.ts'
import { eventually } from '../support/eventually.ts'

// How a runner asks for calls that the API makes.

const done: CallState = { state: 'done', output: '7', is_error: false }
const asked = { key: 'n/tool', at: null, name: null, arguments: '{}' }

test('a call that is quick is asked for once, and another one until it has ended', async () => {
  const states: CallState[] = [{ state: 'open' }, { state: 'open' }, done, done]
  const paths: string[] = []
  const calls = makeCalls(async (path) => {
    paths.push(path)
    return states.shift() ?? done
  })
  const { signal } = new AbortController()
  expect(await calls.callTool('r', 'n', 2, asked, signal)).toEqual(done)
  expect(paths).toEqual(Array.from({ length: 3 }, () => 'runs/r/nodes/n/tool?attempt=2'))
  await calls.callTool('r', 'n', 2, asked, signal)
  expect(paths).toHaveLength(4)
})

test('calls that take long leave room for other requests, and end when their node is cancelled', async () => {
  let waiting = 0
  let most = 0
  const calls = makeCalls(async (_, body, signal) => {
    if ((body as { wait_ms: number }).wait_ms === 500) return { state: 'open' }
    most = Math.max(most, ++waiting)
    await new Promise((resolve) => signal.addEventListener('abort', resolve))
    waiting--
    throw signal.reason as Error
  })
  const ending = new AbortController()
  const all = Array.from({ length: 16 }, () => calls.callTool('r', 'n', 1, asked, ending.signal))
  const settled = Promise.allSettled(all)
  await eventually(() => waiting === 4)
  ending.abort()
  expect((await settled).map(({ status }) => status)).toEqual(all.map(() => 'rejected'))
  expect(most).toBe(4)
})
