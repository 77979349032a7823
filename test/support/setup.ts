import { facts, isRunning, keepsStack, removeStack, startStack } from './stack.ts'

/** Once, before the first end-to-end test. */
export default async function setup(): Promise<void> {
  if (!(keepsStack && (await isRunning()))) {
    await removeStack()
    await startStack()
  }
  process.env['KEELSON_DOCKER_HOST'] = facts().docker_host
}
