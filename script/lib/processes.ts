import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

// Pid files that outlive a killed supervisor. Another program may have the pid by now, so each file also records when
// the process started.

interface Recorded {
  pid: number
  identity: string
}

/**
 * Boot and start time of a process, which no two processes share. Undefined if it is gone, or dead and not yet reaped.
 */
function identityOf(pid: number): string | undefined {
  try {
    // The command's name, in parentheses, may contain spaces: the needed fields follow it.
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8')
      .replace(/^.*\) /s, '')
      .split(' ')
    if (fields[0] === 'Z') return undefined
    const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()
    return `${boot}:${fields[19]}`
  } catch {
    return undefined
  }
}

const folderOf = (run: string) => join(run, 'pids')

/** The supervisor's own pid file, beside those of its roles. */
export const serverName = 'server'

export function recordPid(run: string, name: string, pid: number): void {
  mkdirSync(folderOf(run), { recursive: true })
  const recorded: Recorded = { pid, identity: identityOf(pid) ?? '' }
  writeFileSync(join(folderOf(run), name), JSON.stringify(recorded))
}

export function forgetPid(run: string, name: string): void {
  rmSync(join(folderOf(run), name), { force: true })
}

/** The recorded process of that name, if it still runs. */
export function livingPid(run: string, name: string): number | undefined {
  try {
    const recorded = JSON.parse(readFileSync(join(folderOf(run), name), 'utf8')) as Recorded
    return identityOf(recorded.pid) === recorded.identity ? recorded.pid : undefined
  } catch {
    return undefined
  }
}

/** Names of all recorded processes, alive or not. */
export function recordedNames(run: string): string[] {
  try {
    return readdirSync(folderOf(run))
  } catch {
    return []
  }
}

/** Ends a process that is not our child: SIGTERM, and SIGKILL after `graceMs`. */
export async function endRecorded(run: string, name: string, graceMs: number): Promise<void> {
  for (const signal of ['SIGTERM', 'SIGKILL'] as const) {
    const pid = livingPid(run, name)
    if (!pid) break
    process.kill(pid, signal)
    const deadline = Date.now() + graceMs
    while (livingPid(run, name) && Date.now() < deadline) await sleep(20)
  }
  forgetPid(run, name)
}
