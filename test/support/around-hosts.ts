import { afterAll, afterEach, beforeAll } from '@jest/globals'
import { isRoot } from './as-root.ts'
import { Fabric, type NetworkHost } from './networks.ts'

/** The fabric that `aroundHosts` has made; set while the tests run. */
export let fabric: Fabric
export let one: NetworkHost
export let two: NetworkHost

/**
 * Gives a file's tests `count` hosts, cleared after each test. The first two are `one` and `two`. There is a tunnel
 * between them unless the file says otherwise.
 */
export function aroundHosts({ count = 2, tunnel = true } = {}): void {
  if (!isRoot) return
  beforeAll(async () => {
    fabric = await Fabric.make(count, { tunnel })
    one = fabric.host(0)
    two = fabric.host(1)
  })
  afterEach(() => fabric?.clear())
  afterAll(() => fabric?.remove())
}
