import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { EngineUnavailable } from '../errors.ts'
import { environment, run } from '../system/programs.ts'

// Longer than any copy takes to begin; writers wait no longer, whatever becomes of this process.
const frozenAtMostSec = 10

// In a process of its own, which thaws when this one ends or is killed: its input ends then.
const script = `
trap '' PIPE HUP INT TERM # nobody may read any more, and it must thaw all the same
fsfreeze --freeze "$1" || exit
echo frozen
read -r -t "$2"
fsfreeze --unfreeze "$1"
`

/** Calls `work` while all that was written to a file system is on its device, and nobody writes. */
export async function whileFrozen(mount: string, work: () => Promise<unknown>): Promise<void> {
  await thaw(mount)
  const args = ['-c', script, 'freeze', mount, String(frozenAtMostSec)]
  const child = spawn('bash', args, { env: environment, detached: true, stdio: ['pipe', 'pipe', 'ignore'] })
  const ended = once(child, 'close') as Promise<[number | null]>
  child.stdin.on('error', () => {}) // it has ended
  const isOver = (): boolean => child.exitCode !== null || child.signalCode !== null
  try {
    await Promise.race([once(child.stdout, 'data'), ended])
    if (isOver()) throw new EngineUnavailable('The file system could not be frozen')
    await work()
    if (isOver()) throw new EngineUnavailable('The file system was not frozen for long enough')
  } finally {
    child.stdin.end()
    await ended
    if (child.signalCode !== null) await thaw(mount)
  }
}

/** If its process was killed together with the one that asked. One that is not frozen is left as it is. */
export async function thaw(mount: string): Promise<void> {
  await run('fsfreeze', ['--unfreeze', mount]).catch(() => {})
}
