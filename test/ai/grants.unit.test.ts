import { describe, expect, test } from '@jest/globals'
import { rememberGrants } from '../../worker/runner/grants.ts'

// What a runner keeps of a run, so that it asks less.

describe('a token for calls of a model', () => {
  const signal = new AbortController().signal
  const counting = () => {
    let count = 0
    let now = 0
    const grants = rememberGrants(
      async (run, alias) => ({ token: `${run} ${alias} ${++count}`, provider: 'openai' }),
      () => now,
    )
    const of = async (run: string, alias: string, refused?: string) =>
      (await grants(run, alias, signal, refused)).token
    return { of, pass: (ms: number) => (now += ms) }
  }

  test('is asked for once for each run and model, and again after a while', async () => {
    const { of, pass } = counting()
    expect([await of('r', 'fast'), await of('r', 'fast')]).toEqual(['r fast 1', 'r fast 1'])
    expect([await of('r', 'slow'), await of('s', 'fast')]).toEqual(['r slow 2', 's fast 3'])
    pass(300_000)
    expect(await of('r', 'fast')).toBe('r fast 4')
  })

  test('is asked for once if it is wanted again meanwhile', async () => {
    const { of } = counting()
    const [first, second] = await Promise.all([of('r', 'fast'), of('r', 'fast')])
    expect([first, second, await of('r', 'fast')]).toEqual(['r fast 1', 'r fast 1', 'r fast 1'])
  })

  test('is asked for again if whoever asked before was cancelled', async () => {
    let count = 0
    const stopping = new AbortController()
    const grants = rememberGrants(async (_run, _alias, its) => {
      count++
      await new Promise((resolve) => setTimeout(resolve, 1))
      its.throwIfAborted()
      return { token: `${count}`, provider: 'openai' }
    })
    const cancelled = grants('r', 'fast', stopping.signal)
    const other = grants('r', 'fast', signal)
    stopping.abort(new Error('cancelled'))
    await expect(cancelled).rejects.toThrow('cancelled')
    expect((await other).token).toBe('2')
  })

  test('is asked for again once it was refused', async () => {
    const { of } = counting()
    const token = await of('r', 'fast')
    expect(await of('r', 'fast', token)).toBe('r fast 2')
    expect(await of('r', 'fast', token)).toBe('r fast 2')
  })

  test('is remembered of the last thousand', async () => {
    const { of } = counting()
    for (let run = 0; run <= 1_000; run++) await of(`${run}`, 'm')
    expect(await of('1', 'm')).toBe('1 m 2')
    expect(await of('0', 'm')).toBe('0 m 1002')
  })
})
