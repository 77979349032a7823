import { keepsStack, removeStack } from './stack.ts'

/** Once, after the last end-to-end test, whatever became of them. */
export default async function teardown(): Promise<void> {
  if (!keepsStack) await removeStack()
}

// Run by script/test when jest was interrupted.
if (import.meta.main) await teardown()
