import { appendFile, cp, mkdtemp, readFile, rm, stat, statfs, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { expect, test } from '@jest/globals'
import { clockErrorMs } from '../../support/clocks.ts'
import { processesWith, run } from '../../../drivers/system/programs.ts'
import { newId } from '../../../lib/ids.ts'
import { testDrawn } from '../../support/drawn.ts'
import { isLong } from '../../support/long.ts'
import { eventually } from '../../support/eventually.ts'
import { guest } from '../../support/guest-files.ts'
import {
  anotherWorker,
  clockOff,
  inMachine,
  linesOf,
  machines,
  machineSpec,
  script,
  settings,
  start,
  traces,
  withFileSystem,
  withMachines,
  withOtherHost,
} from '../../support/machine-hosts.ts'

/** Writes, syncs and prints a number, then continues with the next. */
const counter = 'i=0; while :; do i=$((i+1)); echo $i >> /numbers; sync; echo $i; sleep 0.05; done'
const oneAfterTheOther = (count: number): string[] =>
  Array.from({ length: count }, (_, index) => String(index + 1))

/** The digest of the kernel that a running machine has booted, from its process. */
async function kernelOf(id: string): Promise<string> {
  const [qemu] = await processesWith(`/${id}/machine`)
  const at = qemu?.args.indexOf('-kernel') ?? -1
  return basename(dirname(qemu?.args[at + 1] ?? ''))
}

withMachines('suspended machines', () => {
  test('continue their count with a correct clock, across worker restarts, twice', async () => {
    const spec = script(counter)
    await start(spec)
    const cycles = isLong ? 10 : 2
    for (let cycle = 0; cycle < cycles; cycle++) {
      const before = (await linesOf(spec.id)).length
      expect(await eventually(async () => (await linesOf(spec.id)).length > before + 3)).toBe(true)
      const suspended = await machines.suspend(spec.id)
      expect(suspended).toMatchObject({
        state: 'suspended',
        pid: null,
        suspended: { memory_bytes: expect.any(Number) },
      })
      expect(await machines.suspend(spec.id)).toEqual(suspended)
      expect(await traces(spec.id)).toEqual([spec.id])
      await anotherWorker()
      expect(await machines.find(spec.id)).toEqual(suspended)
      const begun = Date.now()
      expect(await machines.resume(spec)).toMatchObject({ state: 'running', suspended: null })
      const tookMs = Date.now() - begun
      await expect(stat(join(settings.folder, spec.id, 'memory'))).rejects.toThrow('ENOENT')
      expect(await clockOff(spec.id)).toBeLessThan(clockErrorMs(tookMs))
    }
    await inMachine(spec.id, 'kill -STOP $(pgrep -f numbers | head -1); sync')
    const written = (await inMachine(spec.id, 'cat /numbers')).split('\n')
    expect(written).toEqual(oneAfterTheOther(written.length))
    const lines = await linesOf(spec.id)
    expect(lines).toEqual(oneAfterTheOther(lines.length))
    await expect(machines.attachDisk(newId(), {} as never)).rejects.toMatchObject({
      code: 'instance_not_found',
    })
  })

  testDrawn(
    'check the disk space for their memory first; a machine without space keeps running',
    async () => {
      await withFileSystem(700, (folder) =>
        withOtherHost(async (there) => {
          const both = [machineSpec(), machineSpec()]
          for (const spec of both) await there.run(spec, {}, newId())
          // There is space for the memory of one: 112 MiB and what must stay free.
          const { bavail, bsize } = await statfs(folder)
          await run('fallocate', ['-l', String(bavail * bsize - 230 * 1024 ** 2), join(folder, 'others')])
          const ended = await Promise.allSettled(both.map(({ id }) => there.suspend(id)))
          const refused = ended.findIndex(({ status }) => status === 'rejected')
          expect(ended[refused]).toMatchObject({
            reason: { code: 'host_disk_full', message: expect.stringContaining('memory') },
          })
          expect(ended[1 - refused]).toMatchObject({ value: { state: 'suspended' } })
          const runs = both[refused]?.id ?? ''
          expect(await there.find(runs)).toMatchObject({ state: 'running', suspended: null })
          expect(await inMachine(runs, 'echo alive', there)).toBe('alive')
        }, folder),
      )
    },
  )

  testDrawn('can be stopped, and start from their disks; memory of another QEMU is refused', async () => {
    const spec = machineSpec()
    await start(spec)
    await inMachine(spec.id, 'echo kept > /kept; sync')
    await machines.suspend(spec.id)
    await machines.stop(spec.id, 1)
    expect(await machines.find(spec.id)).toMatchObject({ state: 'exited', suspended: null })
    await expect(machines.resume(spec)).rejects.toMatchObject({ code: 'memory_unusable' })
    await expect(machines.suspend(spec.id)).rejects.toMatchObject({ code: 'instance_not_running' })
    await start(spec)
    expect(await inMachine(spec.id, 'cat /kept')).toBe('kept')
    await machines.suspend(spec.id)
    const file = join(settings.folder, spec.id, 'machine.json')
    await writeFile(
      file,
      (await readFile(file, 'utf8')).replace(/"engine_version":"[^"]*"/, '"engine_version":"6.0.0"'),
    )
    await expect(machines.resume(spec)).rejects.toMatchObject({ code: 'memory_unusable', permanent: true })
    expect(await machines.find(spec.id)).toMatchObject({ state: 'suspended' })
    expect(await start(spec)).toMatchObject({ state: 'running', suspended: null })
  })

  testDrawn('move to another host, and continue their count there', async () => {
    const spec = script(counter)
    await start(spec)
    expect(await eventually(async () => (await linesOf(spec.id)).length > 3)).toBe(true)
    await expect(machines.serve(spec.id, 60)).rejects.toMatchObject({ code: 'engine_refused' })
    await machines.suspend(spec.id)
    const source = await machines.serve(spec.id, 60)
    await withOtherHost(async (there) => {
      expect(await there.pull(spec.id, source)).toMatchObject({ state: 'suspended' })
      await machines.remove(spec.id)
      expect(await there.resume(spec)).toMatchObject({ state: 'running' })
      await there.stop(spec.id, 0)
      await there.run(machineSpec({ id: spec.id }), {}, newId())
      const written = (await inMachine(spec.id, 'cat /numbers', there)).split('\n')
      expect(written).toEqual(oneAfterTheOther(written.length))
    })
  })

  test('keep the kernel with which they were made: started again, resumed, moved, or not at all', async () => {
    const built = await mkdtemp(join(tmpdir(), 'guest-'))
    await cp(guest, built, { recursive: true })
    await appendFile(join(built, 'initramfs'), Buffer.alloc(512)) // which a kernel ignores
    const [older, newer] = [machineSpec(), machineSpec()]
    await start(older)
    const first = await kernelOf(older.id)
    try {
      await anotherWorker(built)
      await start(newer)
      const second = await kernelOf(newer.id)
      expect(second).not.toBe(first)
      await machines.stop(older.id, 0)
      await start(older)
      expect(await kernelOf(older.id)).toBe(first)
      await machines.suspend(older.id)
      await machines.resume(older)
      expect(await kernelOf(older.id)).toBe(first)

      await machines.stop(newer.id, 0)
      const source = await machines.serve(newer.id, 60)
      await withOtherHost(async (there) => {
        expect((await there.describe()).kernel).toBe((await machines.describe()).kernel)
        await there.pull(newer.id, source) // that host was installed with the first one
        await there.run(newer, {}, newId())
        expect(await kernelOf(newer.id)).toBe(second)
      })

      await machines.stop(older.id, 0)
      await rm(join(settings.folder, '.kernels', first), { recursive: true })
      await anotherWorker(built)
      await expect(start(older)).rejects.toMatchObject({
        code: 'kernel_missing',
        permanent: true,
        message: `The host lacks the kernel ${first.replace('-', ':')}, with which the machine was made`,
      })
    } finally {
      await anotherWorker()
      await rm(built, { recursive: true })
    }
  })

  testDrawn('can be forked: the fork continues independently, and the original is unaffected', async () => {
    const spec = script(counter, { name: 'one' })
    await start(spec)
    await inMachine(spec.id, 'echo shared > /shared; head -c 8 /dev/urandom | md5sum > /seen')
    await machines.suspend(spec.id)
    const other = script(counter, { name: 'other' })
    const operation = newId()
    const forked = await machines.fork(spec.id, other, { WHO: 'fork' }, operation)
    expect(forked).toMatchObject({ id: other.id, state: 'running' })
    expect((await machines.fork(spec.id, other, { WHO: 'fork' }, operation)).pid).toBe(forked.pid)
    expect(await machines.find(spec.id)).toMatchObject({ state: 'suspended' })
    expect(await inMachine(other.id, 'hostname; echo $WHO; cat /shared; echo changed > /shared')).toBe(
      'other\nfork\nshared',
    )
    await machines.resume(spec)
    expect(await inMachine(spec.id, 'hostname; echo $WHO; cat /shared')).toBe('one\n\nshared')
    const random = 'head -c 16 /dev/urandom | md5sum'
    expect(await inMachine(spec.id, random)).not.toBe(await inMachine(other.id, random))
    expect(await eventually(async () => (await linesOf(other.id)).length > 3)).toBe(true)
    const lines = (await linesOf(other.id)).map(Number)
    expect(lines).toEqual(lines.map((_, index) => (lines[0] ?? 0) + index))
  })
})
