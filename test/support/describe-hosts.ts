import { afterEach, beforeAll, describe } from '@jest/globals'
import { allHosts, type TestHost } from './hosts.ts'
import { startAll } from './platform.ts'
import { facts } from './stack.ts'

// Shared by the tests of several hosts.

const isAlone = facts().hosts === 1
if (isAlone) console.warn('The tests of several hosts are skipped: this machine makes no network namespaces.')

/** Skipped where the machine cannot make network namespaces. */
export const describeHosts = isAlone ? describe.skip : describe

export let hosts: TestHost[]
/** The first host is this machine. */
export let first: TestHost
/** The other hosts are network namespaces. */
export let second: TestHost
export let third: TestHost
beforeAll(async () => {
  hosts = await allHosts()
  ;[first, second, third] = hosts as [TestHost, TestHost, TestHost]
})
afterEach(startAll)
