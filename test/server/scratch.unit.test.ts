import { mkdir, mkdtemp } from 'node:fs/promises'
import { existsSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from '@jest/globals'
import { listGroups, makeGroups, markOf } from '../../drivers/linux/groups.ts'
import { newId } from '../../lib/ids.ts'
import { foldersBegin } from '../support/load-balancer-names.ts'
import { removeScratch } from '../support/scratch.ts'

test('what an interrupted run of driver tests leaves is removed', async () => {
  const scratch = await mkdtemp(join(tmpdir(), 'scratch-'))
  const machines = join(scratch, 'machines-a/machines')
  for (const folder of [machines, join(scratch, 'networks-a'), join(scratch, `${foldersBegin}a`)])
    await mkdir(folder, { recursive: true })
  await makeGroups(markOf(machines), newId(), { cpu_cores: 1, memory_mib: 16 })
  await removeScratch(scratch)
  expect(await listGroups(markOf(machines))).toEqual([])
  expect(existsSync(scratch)).toBe(false)
  await removeScratch(scratch) // a missing folder is success
})
