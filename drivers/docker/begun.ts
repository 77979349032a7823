import { readFile } from 'node:fs/promises'
import { setTimeout as delay } from 'node:timers/promises'

const lookEveryMs = 5
// Only a machine that is hardly able to work needs longer; the caller then watches from here.
const withinMs = 10_000

/**
 * Waits until a container's init, the process `pid`, has started the command, or until `ended` aborts. The engine
 * reports a container as started when its init is, which on a busy machine is long before. Returns after 10 s in any
 * case, and at once if /proc does not show the engine's processes.
 */
export async function commandBegun(pid: number, ended: AbortSignal): Promise<void> {
  const deadline = Date.now() + withinMs
  while (!ended.aborted && Date.now() < deadline) {
    const children = await textOf(`/proc/${pid}/task/${pid}/children`)
    if (children === null) return
    for (const child of children.split(' ').filter(Boolean)) {
      // The child is a copy of init until it executes the command. Init is read last: it has just been executed itself.
      const args = await argumentsOf(Number(child))
      if (args && args !== (await argumentsOf(pid))) return
    }
    await delay(lookEveryMs)
  }
}

const argumentsOf = (pid: number): Promise<string | null> => textOf(`/proc/${pid}/cmdline`)

const textOf = (path: string): Promise<string | null> => readFile(path, 'utf8').catch(() => null)
