import { workerData } from 'node:worker_threads'
import type { Watch } from './protocol.ts'

// A thread that watches the process which reads a document: that one is busy, and cannot watch itself.

const lookEveryMs = 20
const { memoryMib, parent, overMemory } = workerData as Watch
const most = memoryMib * 1024 * 1024

setInterval(() => {
  if (process.memoryUsage.rss() > most) process.kill(process.pid, overMemory)
  // Nobody waits for the document any more.
  if (process.ppid !== parent) process.kill(process.pid, 'SIGKILL')
}, lookEveryMs)
