import { describe, expect, test } from '@jest/globals'
import type { RunToken } from '../../lib/runner-protocol.ts'
import { makeTokenSender } from '../../worker/runner/token-sender.ts'

// How a runner sends what its models say.

/** An API that takes batches when it is told to. */
function makeApi() {
  const batches: { run: string; tokens: RunToken[]; answer: PromiseWithResolvers<void> }[] = []
  return {
    batches,
    send: (run: string, tokens: RunToken[]) => {
      const answer = Promise.withResolvers<void>()
      batches.push({ run, tokens, answer })
      return answer.promise
    },
    /** The next batch, once it has come. */
    async batch(number: number) {
      while (!batches[number]) await new Promise(setImmediate)
      return batches[number]
    },
  }
}
const token = (text: string, more: Partial<RunToken> = {}): RunToken => ({
  node: 'write',
  attempt: 1,
  call: 0,
  text,
  ...more,
})
const bounds = { everyMs: 1, batchBytes: 1_000, mostBytes: 2_000 }

describe('what a model says', () => {
  test('is sent in one text, and apart from other nodes, attempts and calls', async () => {
    const api = makeApi()
    const sender = makeTokenSender(api.send, bounds)
    for (const one of ['Three ', 'plain ']) sender.say('run', token(one))
    for (const other of [{ node: 'other' }, { attempt: 2 }, { call: 1 }]) sender.say('run', token('x', other))
    const { run, tokens } = await api.batch(0)
    expect([run, tokens]).toEqual([
      'run',
      [
        token('Three plain '),
        token('x', { node: 'other' }),
        token('x', { attempt: 2 }),
        token('x', { call: 1 }),
      ],
    ])
  })

  test('waits while a batch is under way, and is sent by the end of its node', async () => {
    const api = makeApi()
    const sender = makeTokenSender(api.send, bounds)
    sender.say('run', token('first'))
    const first = await api.batch(0)
    sender.say('run', token('second'))
    sender.say('run', token(' third'))
    let isSent = false
    const sent = sender.sent('run').then(() => (isSent = true))
    first.answer.resolve()
    const second = await api.batch(1)
    expect(second.tokens).toEqual([token('second third')])
    expect(isSent).toBe(false)
    second.answer.resolve()
    await sent
    await sender.sent('run')
    await sender.sent('another')
    expect(api.batches).toHaveLength(2)
  })

  test('is taken along by a request, behind what is under way', async () => {
    const api = makeApi()
    const sender = makeTokenSender(api.send, bounds)
    expect(await sender.take('run', 'write')).toEqual([])
    sender.say('run', token('first'))
    const first = await api.batch(0)
    sender.say('run', token('second'))
    let isTaken = false
    const taken = sender.take('run', 'write').then((tokens) => ((isTaken = true), tokens))
    await new Promise(setImmediate)
    expect(isTaken).toBe(false)
    first.answer.resolve()
    expect(await taken).toEqual([token('second')])
    await sender.sent('run')
    sender.say('run', token('third'))
    expect((await api.batch(1)).tokens).toEqual([token('third')])
  })

  test('of another node is not taken along', async () => {
    const api = makeApi()
    const sender = makeTokenSender(api.send, bounds)
    sender.say('run', token('one'))
    sender.say('run', token('other', { node: 'read' }))
    sender.say('run', token('more'))
    expect(await sender.take('run', 'write')).toEqual([token('one'), token('more')])
    expect(await sender.take('run', 'write')).toEqual([])
    const sent = sender.sent('run')
    const batch = await api.batch(0)
    expect(batch.tokens).toEqual([token('other', { node: 'read' })])
    batch.answer.resolve()
    await sent
  })

  test('of several runs is sent of each', async () => {
    const api = makeApi()
    const sender = makeTokenSender(api.send, bounds)
    for (const run of ['a', 'b', 'c']) sender.say(run, token(run))
    for (let at = 0; at < 3; at++) (await api.batch(at)).answer.resolve()
    expect(api.batches.map(({ run, tokens }) => [run, tokens[0]?.text])).toEqual(
      ['a', 'b', 'c'].map((run) => [run, run]),
    )
  })

  test('is lost if the API does not take it, or if too much waits; the node goes on', async () => {
    const api = makeApi()
    const sender = makeTokenSender(api.send, bounds)
    sender.say('run', token('lost'))
    const first = await api.batch(0)
    for (let at = 0; at < 5; at++) sender.say('run', token(`${at}`.repeat(900)))
    const sent = sender.sent('run')
    first.answer.reject(new Error('away'))
    const second = await api.batch(1)
    expect(second.tokens[0]?.text).toBe('0'.repeat(900) + '1'.repeat(900))
    second.answer.reject(new Error('away'))
    await sent
  })
})
