import { connectDatabase, disconnectDatabase } from '../../models/database.ts'
import { keepsStack, removeStack, stackSettings } from './stack.ts'

/** Runs once after the last end-to-end test of a run of jest, even if tests failed. */
export default async function teardown(): Promise<void> {
  try {
    await endSharedServer()
  } finally {
    if (!keepsStack) await removeStack()
  }
}

async function endSharedServer(): Promise<void> {
  // Imported here, because it can be only while the stack runs.
  const { removeSharedServer } = await import('./shared-server.ts')
  await connectDatabase(stackSettings())
  try {
    await removeSharedServer()
  } finally {
    await disconnectDatabase()
  }
}

// script/test calls this itself, because its runs of jest keep the stack for the next one.
if (import.meta.main) await removeStack()
