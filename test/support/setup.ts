import { facts, isRunning, startStack, useScratch } from './stack.ts'

/** Once, before the first end-to-end test of a run of jest: on the stack that is there, or on a new one. */
export default async function setup(): Promise<void> {
  if (!(await isRunning())) await startStack()
  await useScratch()
  process.env['KEELSON_DOCKER_HOST'] = facts().docker_host
}

// script/test starts a stack before jest, while it checks types and style.
if (import.meta.main) await setup()
