import { randomUUID } from 'node:crypto'
import { readdir } from 'node:fs/promises'
import { expect, test } from '@jest/globals'
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

asRoot('control groups', () => {
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
