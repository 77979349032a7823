import { setTimeout as delay } from 'node:timers/promises'
import { expect, test } from '@jest/globals'
import type { MachineSpec } from '../../../drivers/machines.ts'
import { processesWith } from '../../../drivers/system/programs.ts'
import { newId } from '../../../lib/ids.ts'
import { testDrawn } from '../../support/drawn.ts'
import { eventually } from '../../support/eventually.ts'
import { killedAfter } from '../../support/killed-worker.ts'
import {
  anotherWorker,
  inMachine,
  linesOf,
  machines,
  machineSpec,
  script,
  settings,
  start,
  traces,
  withMachines,
} from '../../support/machine-hosts.ts'
import { sampled } from '../../support/sampled.ts'

/** Spread over the time that the work takes on this machine, without KVM. */
const moments = (longestMs: number, few: number): number[] =>
  sampled(
    Array.from({ length: 12 }, (_, index) => Math.round((longestMs * index) / 11)),
    few,
  )

const counter = 'i=0; while :; do i=$((i+1)); echo $i >> /numbers; sync; echo $i; sleep 0.05; done'

/** No number is missing or repeated, in the file and in the output. */
async function isUnbroken(id: string): Promise<void> {
  const before = (await linesOf(id)).length
  expect(await eventually(async () => (await linesOf(id)).length > before)).toBe(true)
  for (const numbers of [(await inMachine(id, 'cat /numbers')).split('\n'), await linesOf(id)])
    expect(numbers).toEqual(numbers.map((_, index) => String(index + 1)))
}

async function workerKilled(ms: number, method: string, args: unknown[]): Promise<void> {
  await machines.close()
  await killedAfter(ms, 'machine-worker.ts', [settings, method, args])
  await anotherWorker()
}

/** Kills the machine's process so many milliseconds after the work began. */
async function processKilled(spec: MachineSpec, ms: number, work: () => Promise<unknown>): Promise<void> {
  const ended = work().catch(() => {}) // it may succeed or fail
  await delay(ms)
  for (const { pid } of await processesWith(`${settings.run}/${spec.id}/`)) process.kill(pid, 'SIGKILL')
  await ended
}

withMachines('machines whose worker or process is killed', () => {
  test.each(moments(8000, 1))(
    'end as one running machine after a retry, if the worker creates for %d ms',
    async (ms) => {
      const spec = script('echo once; exec sleep 600')
      const operation = newId()
      await workerKilled(ms, 'run', [spec, {}, operation])
      expect(await start(spec, {}, operation)).toMatchObject({ state: 'running' })
      expect(await eventually(async () => (await linesOf(spec.id)).length > 0)).toBe(true)
      expect(await linesOf(spec.id)).toEqual(['once'])
      expect((await traces(spec.id)).filter((trace) => trace.includes('qemu-system'))).toHaveLength(1)
    },
  )

  testDrawn('run or are suspended if the worker suspends or resumes, and lose no number', async () => {
    const spec = script(counter)
    await start(spec)
    for (const ms of moments(2500, 1)) {
      await workerKilled(ms, 'suspend', [spec.id])
      expect(['running', 'suspended']).toContain((await machines.find(spec.id))?.state)
      await machines.suspend(spec.id)
      await workerKilled(ms, 'resume', [spec])
      expect(['running', 'suspended']).toContain((await machines.find(spec.id))?.state)
      expect(await machines.resume(spec)).toMatchObject({ state: 'running', suspended: null })
      await isUnbroken(spec.id)
    }
  })

  testDrawn('are suspended or ended if QEMU suspends or resumes, and start from their disks', async () => {
    const spec = machineSpec()
    await start(spec)
    await inMachine(spec.id, 'echo kept > /kept; sync')
    for (const ms of moments(2500, 1)) {
      await processKilled(spec, ms, () => machines.suspend(spec.id))
      if ((await machines.find(spec.id))?.state === 'suspended') {
        await processKilled(spec, ms, () => machines.resume(spec))
        const { state } = (await machines.find(spec.id)) ?? {}
        if (state === 'suspended') await machines.resume(spec)
      }
      expect(
        await eventually(async () =>
          ['running', 'exited'].includes((await machines.find(spec.id))?.state ?? ''),
        ),
      ).toBe(true)
      expect(await start(spec)).toMatchObject({ state: 'running' })
      expect(await inMachine(spec.id, 'cat /kept')).toBe('kept')
    }
  })

  testDrawn('leave nothing or can start if QEMU is killed during their creation', async () => {
    for (const ms of moments(6000, 1)) {
      const spec = machineSpec()
      await processKilled(spec, ms, () => start(spec))
      if (!(await machines.find(spec.id))) expect(await traces(spec.id)).toEqual([])
      expect(await start(spec)).toMatchObject({ state: 'running' })
      await machines.remove(spec.id)
    }
  })

  testDrawn('are reported and start again if QEMU is killed while they run', async () => {
    const spec = machineSpec()
    const { pid } = await start(spec)
    const told: (string | null)[] = []
    const watching = new AbortController()
    const watched = machines.watch((id) => told.push(id), watching.signal)
    process.kill(pid ?? 0, 'SIGKILL')
    expect(await eventually(async () => (await machines.find(spec.id))?.state === 'exited')).toBe(true)
    expect(await eventually(() => told.includes(spec.id))).toBe(true)
    watching.abort()
    await watched
    expect(await start(spec)).toMatchObject({ state: 'running' })
  })
})
