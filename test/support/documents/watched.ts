import { readdirSync, readFileSync } from 'node:fs'

// Processes that read documents, as the kernel tells.

/** Those whose parent is this process, or another one. */
export function extractionsOf(parent: number): number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => {
      try {
        const status = readFileSync(`/proc/${pid}/status`, 'utf8')
        return (
          Number(/^PPid:\s+(\d+)/m.exec(status)?.[1]) === parent &&
          !/^State:\s+Z/m.test(status) &&
          readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('drivers/documents/process.ts')
        )
      } catch {
        return false // it has ended
      }
    })
}

export function isAlive(pid: number): boolean {
  try {
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'))
  } catch {
    return false
  }
}
