import { keepsStack, removeStack } from './stack.ts'

/** Once, after the last end-to-end test of a run of jest, even if tests failed. */
export default async function teardown(): Promise<void> {
  if (!keepsStack) await removeStack()
}

// Run by script/test, in whose runs of jest the stack is kept for the next one.
if (import.meta.main) await removeStack()
