import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals'
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
} from '../../support/containers.ts'
import { eventually } from '../../support/eventually.ts'

// Containers that end again and again, on the real engine.

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
afterEach(removeTestContainers)
afterAll(() => rm(folder, { recursive: true }))

const policyOf = async (id: string) => {
  const { HostConfig, State } = await docker.getContainer(`keelson-${id}`).inspect()
  return { name: HostConfig.RestartPolicy?.Name, isRunning: State.Running }
}

/** One that ended so often that the host has taken its restarts over, and has ended since. */
async function looping(script = 'sleep 0.3; exit 7'): Promise<string> {
  const spec = shell(script)
  await engine.run(spec, {}, newId())
  await eventually(async () => (await engine.find(spec.id))?.crash_looping)
  await eventually(async () => {
    const { name, isRunning } = await policyOf(spec.id)
    return name === 'no' && !isRunning
  })
  return spec.id
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
