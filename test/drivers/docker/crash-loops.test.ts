import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, expect, jest, test } from '@jest/globals'
import type { ContainerEngine } from '../../../drivers/containers.ts'
import { type CrashLoops, openCrashLoops, pauseMs } from '../../../drivers/docker/crash-loops.ts'
import { makeDockerEngine } from '../../../drivers/docker/engine.ts'
import { makeHostPorts } from '../../../drivers/system/host-ports.ts'
import { newId } from '../../../lib/ids.ts'
import {
  docker,
  dockerHost,
  removeTestContainers,
  shell,
  testHost,
  testPorts,
  testTenant,
} from '../../support/containers.ts'
import { eventually } from '../../support/eventually.ts'

// Containers that end again and again, on the real engine.

const otherTenant = newId()

let folder: string
let loops: CrashLoops
let engine: ContainerEngine

async function open(): Promise<void> {
  loops = await openCrashLoops(dockerHost, folder)
  const ports = makeHostPorts({ address: '127.0.0.1', range: testPorts })
  engine = makeDockerEngine({ hostId: testHost, dockerHost, ports, loops })
}
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'loops-'))
})
afterEach(async () => {
  await removeTestContainers()
  await removeTestContainers(otherTenant)
})
afterAll(() => rm(folder, { recursive: true }))

const policyOf = async (id: string) => {
  const { HostConfig, State } = await docker.getContainer(`keelson-${id}`).inspect()
  return { name: HostConfig.RestartPolicy?.Name, isRunning: State.Running }
}

/** The first run is long enough not to have ended at once, also on a busy machine, and short enough for a crash loop. */
const first = '[ -e /begun ] || { touch /begun; sleep 5; }'

/** One that ended so often that the host has taken its restarts over, and has ended since. */
async function looping(script = 'sleep 0.3; exit 7', tenant_id = testTenant): Promise<string> {
  const spec = shell(`${first}; ${script}`, { tenant_id })
  await engine.run(spec, {}, newId())
  await eventually(async () => (await engine.find(spec.id))?.crash_looping)
  await eventually(async () => {
    const { name, isRunning } = await policyOf(spec.id)
    return name === 'no' && !isRunning
  })
  return spec.id
}

/** Its restarts; NaN while it runs. */
const countOf = async (id: string): Promise<number> => {
  const { isRunning } = await policyOf(id)
  return isRunning ? Number.NaN : ((await engine.find(id))?.restart_count ?? 0)
}

const restart = () => loops.restart(new AbortController().signal)

test('a container that ends again and again is restarted by its host, also by the next one, after longer pauses', async () => {
  await open()
  const id = await looping()
  const found = await engine.find(id)
  expect(found).toMatchObject({ state: 'running', exit_code: 7, crash_looping: true })
  expect(found?.restart_count).toBeGreaterThanOrEqual(5)
  await restart() // its pause is not over
  expect((await engine.find(id))?.restart_count).toBe(found?.restart_count)

  await open() // as after a kill of the host's program
  expect(await engine.find(id)).toMatchObject({ state: 'running', crash_looping: true })
  await eventually(async () => {
    await restart()
    return (await engine.find(id))?.restart_count === Number(found?.restart_count) + 1
  })
  expect([0, 1, 2, 5, 9].map(pauseMs)).toEqual([10_000, 20_000, 40_000, 300_000, 300_000])
  expect((await policyOf(id)).name).toBe('no')
})

test('of each tenant, one container at a time is restarted, and each has its turn', async () => {
  await open()
  const [mine, other] = await Promise.all([
    Promise.all([looping(), looping(), looping()]),
    looping('sleep 0.3; exit 8', otherTenant),
  ])
  /** Their restarts, when all have ended. */
  const counts = () =>
    eventually(async () => {
      const all = await Promise.all([...mine, other].map(countOf))
      return all.every((count) => !Number.isNaN(count)) && all
    })

  const before = await counts()
  for (let turn = 1; turn <= mine.length; turn++) {
    // All pauses are over. Real ones take minutes.
    const clock = jest.spyOn(Date, 'now').mockReturnValue(Date.now() + turn * 3_600_000)
    await restart().finally(() => clock.mockRestore())
    const more = (await counts()).map((count, i) => count - Number(before[i]))
    expect(more.slice(0, -1).toSorted((a, b) => a - b)).toEqual(
      mine.map((_, i) => (i < mine.length - turn ? 0 : 1)),
    )
    expect(more.at(-1)).toBe(turn)
  }
})

test('a container that runs on is its engine’s again', async () => {
  await open()
  const id = await looping(
    '[ -e /tries.done ] && exec sleep 3600; echo >> /tries; [ $(wc -l < /tries) -gt 6 ] && touch /tries.done; sleep 0.2; exit 1',
  )
  await eventually(async () => {
    await restart()
    const found = await engine.find(id)
    return found?.state === 'running' && !found.crash_looping
  })
  expect(await policyOf(id)).toEqual({ name: 'unless-stopped', isRunning: true })
  expect(await readdir(folder)).not.toContain(`${id}.json`)
})

test('a container that was stopped is not restarted', async () => {
  await open()
  const id = await looping()
  await engine.stop(id, 0)
  expect(await engine.find(id)).toMatchObject({ state: 'exited', exit_code: 7 })
  expect(await readdir(folder)).not.toContain(`${id}.json`)
})
