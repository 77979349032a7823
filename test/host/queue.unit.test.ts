import { describe, expect, test } from '@jest/globals'
import { makeNamedQueues, makeQueue, mapAtOnce } from '../../lib/queue.ts'

/** Work that ends on command, and records the order in which it began. */
function steps() {
  const begun: number[] = []
  const ends = new Map<number, () => void>()
  const step = (number: number) => (): Promise<number> => {
    begun.push(number)
    return new Promise((resolve) => ends.set(number, () => resolve(number)))
  }
  return { begun, step, end: (number: number) => ends.get(number)?.() }
}

describe('a queue', () => {
  test('begins work in order, and runs at most as much as its width', async () => {
    const queue = makeQueue(2)
    const { begun, step, end } = steps()
    const all = [0, 1, 2, 3].map((number) => queue(step(number)))
    expect(begun).toEqual([0, 1])
    end(1)
    await all[1]
    await Promise.resolve()
    expect(begun).toEqual([0, 1, 2])
    for (const number of [0, 2]) end(number)
    await all[2]
    await Promise.resolve()
    end(3)
    expect(await Promise.all(all)).toEqual([0, 1, 2, 3])
  })

  test('continues after work that fails, and after work that is cancelled while it waits', async () => {
    const queue = makeQueue(1)
    const leaving = new AbortController()
    const { begun, step } = steps()
    const failing = queue(() => Promise.reject(new Error('failed')))
    const left = queue(step(1), leaving.signal)
    const last = queue(() => Promise.resolve('last'))
    leaving.abort(new Error('called off'))
    await expect(left).rejects.toThrow('called off')
    await expect(failing).rejects.toThrow('failed')
    expect(await last).toBe('last')
    expect(begun).toEqual([])
    await expect(queue(step(2), leaving.signal)).rejects.toThrow('called off')
    expect(await queue(() => Promise.resolve('free'))).toBe('free')
  })

  test('rejects cancelled waiting work at once, whatever runs', async () => {
    const queue = makeQueue(1)
    const { step, end } = steps()
    const running = queue(step(0))
    const leaving = new AbortController()
    const left = queue(step(1), leaving.signal)
    leaving.abort(new Error('called off'))
    await expect(left).rejects.toThrow('called off')
    end(0)
    expect(await running).toBe(0)
  })

  test('completes work that is cancelled after it has begun', async () => {
    const queue = makeQueue(1)
    const calling = new AbortController()
    const { begun, step, end } = steps()
    const running = queue(step(0), calling.signal)
    const next = queue(step(1))
    calling.abort(new Error('called off'))
    await Promise.resolve()
    expect(begun).toEqual([0])
    end(0)
    expect(await running).toBe(0)
    await Promise.resolve()
    end(1)
    expect(await next).toBe(1)
  })
})

test('the parties of a queue take turns, however much each has added, and each keeps its order', async () => {
  const queue = makeQueue(1)
  const begun: string[] = []
  const add = (name: string, signal?: AbortSignal): Promise<unknown> =>
    queue(async () => void begun.push(name), signal, name[0])
  const { step, end } = steps()
  const running = queue(step(0))
  const leaving = new AbortController()
  const left = ['d1', 'd2', 'd3'].map((name) => expect(add(name, leaving.signal)).rejects.toThrow())
  const waiting = ['a1', 'a2', 'a3', 'a4', 'b1', 'c1', 'b2'].map((name) => add(name))
  leaving.abort(new Error('called off'))
  await Promise.all(left)
  const late = add('d4') // what has left costs its party no turn
  end(0)
  await Promise.all([running, ...waiting, late])
  expect(begun).toEqual(['a1', 'b1', 'c1', 'd4', 'a2', 'b2', 'a3', 'a4'])
})

test('a party of which nothing runs begins beyond the width, and the others make up for it', async () => {
  const queue = makeQueue(2, { newcomers: 1 })
  const { begun, step, end } = steps()
  const add = (number: number, party: string) => queue(step(number), undefined, party)
  const all = [0, 1, 2, 3].map((number) => add(number, 'a'))
  all.push(add(4, 'b'), add(5, 'b'), add(6, 'c'))
  expect(begun).toEqual([0, 1, 4])
  end(0)
  await all[0]
  await Promise.resolve()
  expect(begun).toEqual([0, 1, 4])
  end(4)
  await all[4]
  await Promise.resolve()
  expect(begun).toHaveLength(4)
  const endAll = (): void => {
    for (const number of begun) end(number)
  }
  while (begun.length < all.length) {
    endAll()
    await Promise.resolve()
  }
  endAll()
  await Promise.all(all)
  expect(new Set(begun)).toEqual(new Set([0, 1, 2, 3, 4, 5, 6]))
})

test('named queues run work of one name in order, and work of different names in parallel', async () => {
  const inTurn = makeNamedQueues()
  const { begun, step, end } = steps()
  const first = inTurn('a', step(0))
  const second = inTurn('a', step(1))
  const other = inTurn('b', step(2))
  expect(begun).toEqual([0, 2])
  end(0)
  expect(await first).toBe(0)
  await Promise.resolve()
  expect(begun).toEqual([0, 2, 1])
  for (const number of [1, 2]) end(number)
  expect(await Promise.all([second, other])).toEqual([1, 2])
  await expect(inTurn('a', () => Promise.reject(new Error('failed')))).rejects.toThrow('failed')
  expect(await inTurn('a', () => Promise.resolve('after'))).toBe('after')
})

test('a parallel map keeps the order of its items', async () => {
  let [now, most] = [0, 0]
  const doubled = await mapAtOnce([5, 1, 3, 2], 2, async (item) => {
    most = Math.max(most, ++now)
    await new Promise((resolve) => setTimeout(resolve, item))
    now--
    return item * 2
  })
  expect(doubled).toEqual([10, 2, 6, 4])
  expect(most).toBe(2)
})
