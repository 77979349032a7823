import { newId } from '../../lib/ids.ts'
import { facts, isRunning, startStack, useScratch } from './stack.ts'

/** Runs once before the first end-to-end test of a run of jest: uses the running stack, or starts one. */
export default async function setup(): Promise<void> {
  if (!(await isRunning())) await startStack()
  await useScratch()
  process.env['KEELSON_DOCKER_HOST'] = facts().docker_host
  process.env['KEELSON_TEST_SHARED_TENANT'] = newId() // of test/support/shared-server.ts
}

// script/test starts a stack before jest, while it checks types and style.
if (import.meta.main) await setup()
