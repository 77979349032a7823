import { workerData } from 'node:worker_threads'
import type { Watch } from './protocol.ts'

// A thread that watches the process which reads a document: that one is busy, and cannot watch itself.

const lookEveryMs = 20
const { memoryMib, cpuMs, parent, over } = workerData as Watch
const mostBytes = memoryMib * 1024 * 1024

function usedMs(): number {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1000
}

setInterval(() => {
  if (process.memoryUsage.rss() > mostBytes) process.kill(process.pid, over.memory)
  if (usedMs() > cpuMs) process.kill(process.pid, over.cpu)
  // Nobody waits for the document any more.
  if (process.ppid !== parent) process.kill(process.pid, 'SIGKILL')
}, lookEveryMs)
