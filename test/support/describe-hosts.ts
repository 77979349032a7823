import { afterEach, beforeAll, describe } from '@jest/globals'
import { allHosts, type TestHost } from './hosts.ts'
import { startAll } from './platform.ts'
import { facts } from './stack.ts'

// What the tests of several hosts share.

const isAlone = facts().hosts === 1
if (isAlone) console.warn('The tests of several hosts are skipped: this machine makes no network namespaces.')

/** Skipped where the machine lets no network namespaces be made. */
export const describeHosts = isAlone ? describe.skip : describe

export let hosts: TestHost[]
/** This machine. */
export let first: TestHost
/** These are network namespaces. */
export let second: TestHost
export let third: TestHost
beforeAll(async () => {
  hosts = await allHosts()
  ;[first, second, third] = hosts as [TestHost, TestHost, TestHost]
})
afterEach(startAll)
