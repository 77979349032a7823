import PQueue from 'p-queue'

/**
 * Runs work in the order it was added. If the signal aborts while the work waits, the work leaves the queue and the
 * call rejects at once with the signal's reason. Work that has begun always completes, so an undo never overtakes it.
 * Parties take turns: of each other party, work waits for no more pieces than its own party had added before it.
 */
export type Queue = <T>(work: () => Promise<T>, signal?: AbortSignal, party?: string) => Promise<T>

/**
 * Runs at most `width` at once. While the queue is full, `newcomers` parties of which nothing runs begin beyond the
 * width, and the others make up for them as soon as they can.
 */
export function makeQueue(width = 1, { newcomers = 0 } = {}): Queue {
  const queue = new PQueue({ concurrency: width })
  const rounds = makeRounds()
  const running = new Map<string, number>()
  let beyond = 0

  async function run<T>(party: string, work: () => Promise<T>): Promise<T> {
    running.set(party, (running.get(party) ?? 0) + 1)
    try {
      return await work()
    } finally {
      const left = (running.get(party) ?? 0) - 1
      if (left) running.set(party, left)
      else running.delete(party)
    }
  }

  function addBeyond(change: number): void {
    beyond += change
    queue.concurrency = Math.max(1, width - beyond)
  }

  async function runBeyond<T>(party: string, work: () => Promise<T>): Promise<T> {
    addBeyond(1)
    try {
      return await run(party, work)
    } finally {
      addBeyond(-1)
    }
  }

  return (work, signal, party = '') => {
    const isFull = queue.pending >= queue.concurrency
    if (isFull && beyond < newcomers && !running.has(party) && !signal?.aborted) return runBeyond(party, work)
    const round = rounds.join(party)
    // p-queue would let the signal abort work that has begun, so give it a signal that covers only the wait.
    const waiting = new AbortController()
    const leave = (): void => {
      rounds.leave(party)
      waiting.abort(signal?.reason)
    }
    const begin = () => {
      signal?.removeEventListener('abort', leave)
      rounds.begin(party, round)
      return run(party, work)
    }
    if (signal?.aborted) leave()
    else signal?.addEventListener('abort', leave, { once: true })
    return queue.add(begin, { signal: waiting.signal, priority: -round })
  }
}

/** The rounds in which parties take turns: each has one piece of work in a round, and joins after the present one. */
function makeRounds() {
  let present = 0
  const parties = new Map<string, { waiting: number; last: number }>()
  function leave(party: string): void {
    const its = parties.get(party)
    if (its && --its.waiting === 0) parties.delete(party)
  }
  return {
    join(party: string): number {
      const its = parties.get(party) ?? { waiting: 0, last: present }
      parties.set(party, its)
      its.waiting++
      its.last = Math.max(present, its.last) + 1
      return its.last
    },
    leave,
    begin(party: string, round: number): void {
      present = Math.max(present, round)
      leave(party)
    },
  }
}

/** Work with the same name runs one at a time, in order; different names run concurrently. */
export type NamedQueues = <T>(name: string, work: () => Promise<T>) => Promise<T>

export function makeNamedQueues(): NamedQueues {
  const queues = new Map<string, PQueue>()
  return async (name, work) => {
    const queue = queues.get(name) ?? new PQueue({ concurrency: 1 })
    queues.set(name, queue)
    try {
      return await queue.add(work)
    } finally {
      if (queue.size === 0 && queue.pending === 0) queues.delete(name)
    }
  }
}

/** Maps with at most `width` concurrent calls. Results keep the order of the items; rejects with the first failure. */
export async function mapAtOnce<T, R>(
  items: T[],
  width: number,
  work: (item: T) => Promise<R>,
): Promise<R[]> {
  const queue = makeQueue(width)
  return Promise.all(items.map((item) => queue(() => work(item))))
}
