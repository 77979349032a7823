import { relative, resolve } from 'node:path'
import { filesOfRun } from './drawn-files.ts'
import { secondsOf } from './times.ts'

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
/** The number of calm files that run in parallel: see script/test. */
const calmAtOnce = 2
const isLast = ({ path }: Test): boolean => path.endsWith('/operations/secrets.test.ts')
const byName = (a: Test, b: Test): number => (a.path < b.path ? -1 : 1)
const slowestFirst = (a: Test, b: Test): number => secondsFor(b) - secondsFor(a) || byName(a, b)

function inOrder(all: Test[]): Test[] {
  const sorted = all.toSorted(slowestFirst)
  return [...sorted.filter((test) => !isLast(test)), ...sorted.filter(isLast)]
}

/**
 * The order in which jest runs the files: the slowest first, so that no worker starts a long file when the others have
 * ended. The search for secrets runs last, because it examines what all other files have left.
 */
export default class Order {
  sort(all: Iterable<Test>): Test[] {
    return inOrder([...all])
  }

  /**
   * Deals the exclusive files so that all shards end together: each to the shard with the least work so far. The first
   * shard's stack has run the calm files before. Each shard has its own stack, so each searches for secrets.
   */
  shard(all: Iterable<Test>, { shardIndex, shardCount }: Shard): Test[] {
    const given = [...all]
    const ordered = inOrder(given)
    const shards = Array.from({ length: shardCount }, () => ({ seconds: 0, tests: [] as Test[] }))
    const [first] = shards
    const exclusive = new Set(given.map(fileOf))
    const calm = filesOfRun().filter((file) => !exclusive.has(file))
    if (first) first.seconds = calm.reduce((sum, file) => sum + secondsOf(file), 0) / calmAtOnce
    for (const test of ordered) {
      const takers = isLast(test) ? shards : shards.toSorted((a, b) => a.seconds - b.seconds).slice(0, 1)
      for (const taker of takers) {
        taker.tests.push(test)
        taker.seconds += secondsFor(test)
      }
    }
    return shards[shardIndex - 1]?.tests ?? []
  }

  // jest's own sequencer also runs failed tests first next time; this one does not.
  allFailedTests(): Test[] {
    return []
  }
  cacheResults(): void {
    // nothing is kept
  }
}
