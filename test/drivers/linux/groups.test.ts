import { randomUUID } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { expect, test } from '@jest/globals'
import { diskBelow } from '../../../drivers/linux/block-devices.ts'
import { listGroups, makeGroups, removeGroups } from '../../../drivers/linux/groups.ts'
import { asRoot } from '../../support/as-root.ts'

/** The empty groups above a group: none, unless another one is just being created. */
async function emptyAbove(entries: string[]): Promise<string[]> {
  const above = entries.map((entry) => entry.slice(0, entry.indexOf('/keelson/') + '/keelson'.length))
  const found = await Promise.all(
    above.map(async (folder) => {
      const inside = await readdir(folder, { withFileTypes: true }).catch(() => null)
      return inside?.every((entry) => !entry.isDirectory()) ? [folder] : []
    }),
  )
  return found.flat()
}

/** What the kernel keeps of a group's limits, by the file of version 1 or of version 2. */
async function kept(entries: string[], names: string[]): Promise<string> {
  const read = entries.flatMap((entry) =>
    names.map((name) => readFile(join(dirname(entry), name), 'utf8').catch(() => '')),
  )
  return (await Promise.all(read)).join('').trim()
}

asRoot('control groups', () => {
  test('limit memory, processes and disk operations of what is in them', async () => {
    const mark = `test-${randomUUID().slice(0, 8)}`
    const disk = await diskBelow('/var/tmp')
    if (disk === null) throw new Error('/var/tmp is on no single disk')
    const io = { disk, bytes: 16 * 1024 ** 2, operations: 500 }
    const entries = await makeGroups(mark, 'one', { cpu_cores: 1, memory_mib: 16, pids: 20, io })
    const memory = await kept(entries, ['memory.limit_in_bytes', 'memory.max'])
    expect(memory).toBe(String(16 * 1024 ** 2))
    expect(await kept(entries, ['pids.max'])).toBe('20')
    for (const way of ['read', 'write'] as const) {
      const bytes = await kept(entries, [`blkio.throttle.${way}_bps_device`, 'io.max'])
      expect(bytes).toMatch(new RegExp(`\\b${io.bytes}\\b`))
      const operations = await kept(entries, [`blkio.throttle.${way}_iops_device`, 'io.max'])
      expect(operations).toMatch(/\b500\b/)
    }
    await removeGroups(mark, 'one')
  })

  test('are removed with their parents, unless those hold others', async () => {
    const mark = `test-${randomUUID().slice(0, 8)}`
    const limits = { cpu_cores: 1, memory_mib: 16 }
    const entries = await makeGroups(mark, 'one', limits)
    await makeGroups(mark, 'two', limits)
    await removeGroups(mark, 'one')
    expect(await listGroups(mark)).toEqual(['two'])
    await removeGroups(mark, 'two')
    await removeGroups(mark, 'two')
    expect(await listGroups(mark)).toEqual([])
    expect(await emptyAbove(entries)).toEqual([])
  })
})
