import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from '@jest/globals'
import { run } from '../../drivers/system/programs.ts'
import { watchDisk } from '../../lib/disk-room.ts'
import { asRoot } from '../support/as-root.ts'
import { eventually } from '../support/eventually.ts'

let disk: string
beforeEach(async () => {
  disk = await mkdtemp(join(tmpdir(), 'disk-room-'))
  await run('mount', ['-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', disk])
})
afterEach(async () => {
  await run('umount', [disk])
  await rm(disk, { recursive: true })
})

asRoot('a disk', () => {
  test('is told of when it is 85 and 95 % full, and when it has room again', async () => {
    const told: string[] = []
    const stop = watchDisk(disk, (words, isFuller) => told.push(`${isFuller ? 'warn' : 'info'}: ${words}`))
    try {
      const fill = async (kib: number) => {
        const before = told.length
        await writeFile(join(disk, 'filler'), Buffer.alloc(kib * 1024))
        await eventually(() => told.length > before)
      }
      await fill(900)
      await fill(1000)
      await fill(100)
      expect(told).toEqual([
        `warn: the disk of ${disk} is 87 % full`,
        `warn: the disk of ${disk} is 97 % full`,
        `info: the disk of ${disk} is 9 % full`,
      ])
    } finally {
      stop()
    }
  })
})
