import { keepsStack, removeStack } from './stack.ts'

/** Runs once after the last end-to-end test of a run of jest, even if tests failed. */
export default async function teardown(): Promise<void> {
  if (!keepsStack) await removeStack()
}

// script/test calls this itself, because its runs of jest keep the stack for the next one.
if (import.meta.main) await removeStack()
