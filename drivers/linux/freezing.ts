import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { EngineUnavailable } from '../errors.ts'
import { environment, run } from '../system/programs.ts'

// More than any copy needs to begin. Writers never wait longer, even if this process dies.
const frozenAtMostSec = 10

// A separate process thaws the file system when this process ends or is killed, because its input ends then.
const script = `
trap '' PIPE HUP INT TERM # nobody may read any more, and it must thaw all the same
fsfreeze --freeze "$1" || exit
echo frozen
read -r -t "$2"
fsfreeze --unfreeze "$1"
`

/** Calls `work` while a file system is frozen: all its data is on the device and writers wait. */
export async function whileFrozen(mount: string, work: () => Promise<unknown>): Promise<void> {
  await thaw(mount)
  const args = ['-c', script, 'freeze', mount, String(frozenAtMostSec)]
  const child = spawn('bash', args, { env: environment, detached: true, stdio: ['pipe', 'pipe', 'ignore'] })
  const ended = once(child, 'close') as Promise<[number | null]>
  child.stdin.on('error', () => {}) // the process has ended
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

/** Thaws a file system whose freezing process was killed. Does nothing if it is not frozen. */
export async function thaw(mount: string): Promise<void> {
  await run('fsfreeze', ['--unfreeze', mount]).catch(() => {})
}
