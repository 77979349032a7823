import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from '@jest/globals'
import { InstanceNotFound } from '../../../drivers/errors.ts'
import { MachineHost, type QemuSettings } from '../../../drivers/qemu/host.ts'
import { newRecord, writeRecord } from '../../../drivers/qemu/records.ts'
import { newId } from '../../../lib/ids.ts'

let folder: string

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'machines-'))
})
afterEach(() => rm(folder, { recursive: true }))

test('a report that arrives while its machine is removed leaves nothing, and breaks nothing', async () => {
  const settings = { folder, run: join(folder, 'run') } as Required<QemuSettings>
  const host = new MachineHost(settings, null as never, null as never, null as never)
  const outcomes = await Promise.all(
    Array.from({ length: 50 }, async () => {
      const id = newId()
      const record = newRecord({
        spec: {} as never,
        image_digest: newId(),
        operation_id: newId(),
        launched: null,
        kernel: null,
      })
      await writeRecord(host.placeOf(id), record)
      const reports = Promise.allSettled(
        Array.from({ length: 5 }, (_, restart_count) => host.change(id, { restart_count })),
      )
      await host.removeFiles(host.placeOf(id))
      const late = await Promise.allSettled([host.change(id, { restart_count: 9 })])
      return [...(await reports), ...late]
    }),
  )
  const failures = outcomes.flat().filter((outcome) => outcome.status === 'rejected')
  expect(failures.filter(({ reason }) => !(reason instanceof InstanceNotFound))).toEqual([])
  expect(failures.length).toBeGreaterThanOrEqual(50)
  expect(await readdir(folder)).toEqual([])
})
