import { once } from 'node:events'
import http from 'node:http'
import { setTimeout as delay } from 'node:timers/promises'
import { growthRows, type Point, type Row } from '../measure.ts'
import type { Stack } from '../stack.ts'
import { usedMib } from '../used-memory.ts'
import { putWaiting, removeWaiting } from './waiting.ts'
import { withStored } from './stored.ts'

const openAtOnce = 50
// Time for the requests to finish what they do at their start.
const settleMs = 5_000

/** Readers that are there all the while: the first load modules and fill caches. */
const filling = 100

/** What readers add to the memory that the API uses: those that wait for an operation, and those that follow a log. */
export async function growingReaders(stack: Stack, sizes = [100, 1_000]): Promise<Row[]> {
  const container = await stack.finish('POST', '/api/v1/containers', {
    name: 'bench-readers',
    image: 'busybox',
    command: ['sleep', '3600'],
    cpu_cores: 0.1,
    memory_mib: 16,
  })
  try {
    const waiters = await withStored(stack, async ({ tenant_id }) => {
      const [id] = await putWaiting(tenant_id, 1)
      try {
        return await added(stack, `/api/v1/operations/${id}?wait=60`, sizes)
      } finally {
        await removeWaiting()
      }
    })
    const followers = await added(stack, `/api/v1/containers/${container.id}/logs?follow=true`, sizes)
    return [
      ...growthRows((n) => `memory used by api for ${n} more readers that wait`, 'MiB', waiters, 1),
      ...growthRows((n) => `memory used by api for ${n} more readers that follow`, 'MiB', followers, 1),
    ]
  } finally {
    await stack.finish('DELETE', `/api/v1/containers/${container.id}`)
  }
}

/** MiB with that many readers of a path. */
async function added(stack: Stack, path: string, sizes: number[]): Promise<Point[]> {
  // A new process: an old one holds what earlier rows left in its caches.
  for (const verb of ['stop', 'start'] as const) await stack.role(verb, 'api')
  const { api = 0 } = await stack.pids()
  const points: Point[] = []
  const readers: http.ClientRequest[] = []
  try {
    readers.push(...(await open(stack, path, filling)))
    await delay(settleMs)
    const without = await usedMib(api)
    for (const size of sizes) {
      readers.push(...(await open(stack, path, filling + size - readers.length)))
      await delay(settleMs)
      points.push({ size, figures: [(await usedMib(api)) - without] })
    }
  } finally {
    await closeAll(readers)
  }
  return points
}

async function open(stack: Stack, path: string, count: number): Promise<http.ClientRequest[]> {
  const readers: http.ClientRequest[] = []
  while (readers.length < count) {
    const some = Array.from({ length: Math.min(openAtOnce, count - readers.length) }, () => {
      const reader = http.get(stack.api + path, { agent: false, headers: stack.headers })
      reader.on('error', () => {})
      reader.on('response', (answer) => answer.resume())
      return reader
    })
    await Promise.all(some.map((reader) => once(reader, 'finish')))
    readers.push(...some)
  }
  return readers
}

async function closeAll(readers: http.ClientRequest[]): Promise<void> {
  const left = readers.filter(({ destroyed }) => !destroyed)
  const closed = left.map((reader) => new Promise((resolve) => reader.once('close', resolve)))
  for (const reader of left) reader.destroy()
  await Promise.all(closed)
}
