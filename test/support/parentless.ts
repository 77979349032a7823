import { readFileSync } from 'node:fs'
import { basename } from 'node:path'
import type Docker from 'dockerode'
import { processIds } from '../../drivers/system/programs.ts'

/**
 * The processes of a server, by its state folder in their arguments or settings, that it has lost: they descend neither from the
 * supervisor nor from what keeps a container of its engine.
 */
export async function parentless(state: string, supervisor: number, engine: Docker): Promise<string[]> {
  const containers = new Set((await engine.listContainers({ all: true })).map(({ Id }) => Id))
  const isKept = (args: string[]): boolean =>
    basename(args[0] ?? '').startsWith('containerd-shim') && args.some((arg) => containers.has(arg))
  const isHeld = (pid: number): boolean => {
    for (let at = pid; at > 1; at = parentOf(at))
      if (at === supervisor || isKept(wordsOf(at, 'cmdline'))) return true
    return false
  }
  const isOfServer = (word: string): boolean => word.includes(`${state}/`)
  return (await processIds())
    .filter((pid) => pid !== process.pid)
    .filter((pid) => [...wordsOf(pid, 'cmdline'), ...wordsOf(pid, 'environ')].some(isOfServer))
    .filter((pid) => !isHeld(pid))
    .map((pid) => `${pid} ${wordsOf(pid, 'cmdline').join(' ')}`)
}

/** Empty if the process has ended. */
function wordsOf(pid: number, file: 'cmdline' | 'environ'): string[] {
  try {
    return readFileSync(`/proc/${pid}/${file}`, 'utf8').split('\0').filter(Boolean)
  } catch {
    return []
  }
}

function parentOf(pid: number): number {
  try {
    return Number(/^PPid:\s+(\d+)$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0)
  } catch {
    return 0
  }
}
