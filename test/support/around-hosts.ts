import { afterAll, afterEach, beforeAll } from '@jest/globals'
import { isRoot } from './as-root.ts'
import { Fabric } from './networks.ts'

/** Around a file's tests: two hosts, cleared after each test. */
export function aroundHosts(use: (fabric: Fabric) => void): void {
  if (!isRoot) return
  let fabric: Fabric | undefined
  beforeAll(async () => {
    fabric = await Fabric.make(2)
    use(fabric)
  })
  afterEach(() => fabric?.clear())
  afterAll(() => fabric?.remove())
}
