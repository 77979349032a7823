import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'

/**
 * Starts a worker process, and kills it so many milliseconds after it has begun, or when `after` resolves, unless it ends
 * earlier. `given` are its arguments, sent as JSON.
 */
export async function killedAfter(
  after: number | (() => Promise<unknown>),
  script: string,
  given: unknown[],
): Promise<void> {
  const file = join(import.meta.dirname, script)
  const args = given.map((value) => JSON.stringify(value))
  const worker = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', file, ...args], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const ended = once(worker, 'exit')
  await once(worker.stdout, 'data')
  await (typeof after === 'number' ? delay(after) : after())
  worker.kill('SIGKILL')
  await ended
}
