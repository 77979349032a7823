interface Test {
  path: string
}
interface Shard {
  shardIndex: number
  shardCount: number
}

const byName = (tests: Iterable<Test>): Test[] => [...tests].toSorted((a, b) => (a.path < b.path ? -1 : 1))
const isLast = ({ path }: Test): boolean => path.endsWith('/operations/secrets.test.ts')
// By its name it would be in the second half, which would then take ten minutes more than the first.
const isInFirst = ({ path }: Test): boolean => path.endsWith('/storage/disk-kills.test.ts')

/**
 * The order in which jest runs the files: by name, the same on every machine. The search for secrets comes last, since
 * it looks at what all the others have left.
 */
export default class Order {
  sort(tests: Iterable<Test>): Test[] {
    const all = byName(tests)
    return [...all.filter((test) => !isLast(test)), ...all.filter(isLast)]
  }

  /** Every second file of two. The search for secrets is in each, since each has a platform of its own. */
  shard(tests: Iterable<Test>, { shardIndex, shardCount }: Shard): Test[] {
    const shardOf = (test: Test, i: number): number => (isInFirst(test) ? 1 : (i % shardCount) + 1)
    return byName(tests).filter((test, i) => isLast(test) || shardOf(test, i) === shardIndex)
  }

  // What jest's own sequencer is for besides: running what failed, and the slow first, next time.
  allFailedTests(): Test[] {
    return []
  }
  cacheResults(): void {
    // nothing is kept
  }
}
