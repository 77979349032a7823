import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'

/**
 * Lets another process begin some work, and kills it so many milliseconds after it has said so, or lets it end if it is faster.
 * `given` are its arguments, as JSON.
 */
export async function killedAfter(ms: number, script: string, given: unknown[]): Promise<void> {
  const file = join(import.meta.dirname, script)
  const args = given.map((value) => JSON.stringify(value))
  const worker = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', file, ...args], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const ended = once(worker, 'exit')
  await once(worker.stdout, 'data')
  await delay(ms)
  worker.kill('SIGKILL')
  await ended
}
