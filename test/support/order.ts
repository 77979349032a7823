import { relative, resolve } from 'node:path'
import { secondsBeside, secondsOf } from './times.ts'

interface Test {
  path: string
}
interface Shard {
  shardIndex: number
  shardCount: number
}

const tests = resolve(import.meta.dirname, '..')
const fileOf = ({ path }: Test): string => relative(tests, path)
const secondsFor = (test: Test): number => secondsOf(fileOf(test))
/** So many calm files run at once: script/test. */
const calmAtOnce = 4
const isLast = ({ path }: Test): boolean => path.endsWith('/operations/secrets.test.ts')
const byName = (a: Test, b: Test): number => (a.path < b.path ? -1 : 1)
const slowestFirst = (a: Test, b: Test): number => secondsFor(b) - secondsFor(a) || byName(a, b)

function inOrder(all: Test[]): Test[] {
  const sorted = all.toSorted(slowestFirst)
  return [...sorted.filter((test) => !isLast(test)), ...sorted.filter(isLast)]
}

/**
 * The order in which jest runs the files: the slowest first, so that no worker starts a long file when the others have
 * ended. The search for secrets comes last, since it looks at what all the others have left.
 */
export default class Order {
  sort(all: Iterable<Test>): Test[] {
    return inOrder([...all])
  }

  /**
   * Deals the exclusive files so that all shards end together: each to the shard that has least so far. The first shard's stack
   * runs the calm files before. The search for secrets is in each shard, since each has its own stack.
   */
  shard(all: Iterable<Test>, { shardIndex, shardCount }: Shard): Test[] {
    const given = [...all]
    const ordered = inOrder(given)
    const shards = Array.from({ length: shardCount }, () => ({ seconds: 0, tests: [] as Test[] }))
    const [first] = shards
    if (first) first.seconds = secondsBeside(given.map(fileOf)) / calmAtOnce
    for (const test of ordered) {
      const takers = isLast(test) ? shards : shards.toSorted((a, b) => a.seconds - b.seconds).slice(0, 1)
      for (const taker of takers) {
        taker.tests.push(test)
        taker.seconds += secondsFor(test)
      }
    }
    return shards[shardIndex - 1]?.tests ?? []
  }

  // What jest's own sequencer is for besides: running what failed first next time.
  allFailedTests(): Test[] {
    return []
  }
  cacheResults(): void {
    // nothing is kept
  }
}
