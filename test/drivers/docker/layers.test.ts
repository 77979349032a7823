import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals'
import { readSettings } from '../../../config.ts'
import type { ContainerEngine, ContainerSpec } from '../../../drivers/containers.ts'
import { makeDockerEngine } from '../../../drivers/docker/engine.ts'
import { openHostLayers } from '../../../drivers/docker/host-layers.ts'
import { hasLayerQuotas } from '../../../drivers/docker/layer-quota.ts'
import { makeHostPorts } from '../../../drivers/system/host-ports.ts'
import { newId } from '../../../lib/ids.ts'
import { makeLogger } from '../../../lib/log.ts'
import { observeInstances } from '../../../worker/host/instances.ts'
import { keepLayers } from '../../../worker/host/parts/containers.ts'
import { image } from '../../support/base-images.ts'
import { docker, onEngine, removeTestContainers, shell, testPorts } from '../../support/containers.ts'
import { eventually } from '../../support/eventually.ts'
import { execInside } from '../../support/inside.ts'

// Containers try to fill their host's disk.

const hostId = newId()
const { KEELSON_DOCKER_HOST: dockerHost } = readSettings('host')
const limitMib = 32
const disk_gib = limitMib / 1024
const fill = (file: string): string => `dd if=/dev/zero of=${file} bs=1M count=${limitMib + 16} 2>/dev/null`

let folder: string
const hosts: (() => Promise<void>)[] = []
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'keelson-layers-'))
})
afterEach(async () => {
  for (const close of hosts.splice(0)) await close()
  await removeTestContainers()
})
afterAll(() => rm(folder, { recursive: true }))

/** The part of a host that runs containers and measures them. */
async function host(quotas = false): Promise<{ engine: ContainerEngine; close: () => Promise<void> }> {
  const layers = await openHostLayers({ hostId, dockerHost, folder, bytesPerSec: null })
  const ports = makeHostPorts({ address: '127.0.0.1', range: testPorts })
  const engine = makeDockerEngine({ hostId, dockerHost, ports, layers, quotas })
  const log = makeLogger('host', 'fatal')
  const seen = observeInstances(engine, log)
  const ending = new AbortController()
  const work = [
    seen.watch(() => void seen.observe().catch(() => []), ending.signal),
    keepLayers({ layers, engine, instances: seen, log }, ending.signal),
  ]
  const close = async (): Promise<void> => {
    ending.abort()
    await Promise.all(work)
  }
  hosts.push(close)
  return { engine, close }
}

const inside = async (id: string, script: string): Promise<string> => {
  const [one] = await onEngine(id)
  return (await execInside(docker.getContainer(one?.Id ?? ''), ['sh', '-c', script])).output
}

test('a container that writes too much is stopped for good, and starts again with its files and a new limit', async () => {
  const first = await host()
  const spec = shell(`[ -e /filled ] || ${fill('/filled')}; sleep 600`, { disk_gib })
  await first.engine.run(spec, {}, newId())
  const full = { state: 'exited', ended_by: 'disk_full' }
  await eventually(async () => (await first.engine.find(spec.id))?.ended_by)
  expect(await first.engine.find(spec.id)).toMatchObject(full)
  await first.close()

  const { engine } = await host() // the next program of the same host
  expect(await engine.list()).toMatchObject([full])
  const [stopped] = await onEngine(spec.id)
  const { HostConfig } = await docker.getContainer(stopped?.Id ?? '').inspect()
  expect(HostConfig.RestartPolicy?.Name).toBe('no')

  const again = await engine.run({ ...spec, disk_gib: 1 }, {}, newId())
  expect(again).toMatchObject({ state: 'running', engine_id: stopped?.Id })
  expect(again.ended_by).toBeUndefined()
  expect(await inside(spec.id, 'ls /filled')).toBe('/filled')

  await engine.resize(spec.id, { ...spec, disk_gib })
  await eventually(async () => (await engine.find(spec.id))?.ended_by)
  await engine.remove(spec.id)
  expect(await readdir(folder)).toEqual([])
})

// An engine with quotas refuses none: quotas.test.ts has one.
const testRefusal = (await hasLayerQuotas(dockerHost)) ? test.skip : test
testRefusal('an engine that refuses quotas runs the container, which is measured', async () => {
  const { engine } = await host(true)
  const spec = shell(`${fill('/filled')}; sleep 600`, { disk_gib })
  await engine.run(spec, {}, newId())
  expect(await eventually(async () => (await engine.find(spec.id))?.ended_by)).toBe('disk_full')
})

test('whatever a container writes outside its disks counts, wherever it hides, and nothing else', async () => {
  await image('keelson/test-volume', '1', [], ['VOLUME /volume'])
  const { engine } = await host()
  const outside = await mkdtemp(join(tmpdir(), 'keelson-disk-'))
  const most = { disk_gib, cpu_cores: 1, memory_mib: 128 }
  const hideouts: Record<string, ContainerSpec> = {
    layer: shell(`${fill('/filled')}; sleep 600`, most),
    'deleted file': shell(
      `exec 3>/gone; rm /gone; dd if=/dev/zero bs=1M count=${limitMib + 16} 2>/dev/null >&3; sleep 600`,
      most,
    ),
    'file of the engine': shell(`${fill('/etc/hosts')}; sleep 600`, most),
    'volume of the image': shell(`${fill('/volume/filled')}; sleep 600`, {
      ...most,
      image: 'keelson/test-volume:1',
    }),
    'empty files': shell(`i=0; while [ $i -lt 9000 ]; do : > /$i; i=$((i + 1)); done; sleep 600`, most),
  }
  const fine: Record<string, ContainerSpec> = {
    less: shell('dd if=/dev/zero of=/some bs=1M count=16 2>/dev/null; sleep 600', most),
    memory: shell(`${fill('/dev/shm/filled')}; sleep 600`, most),
    disk: shell(`${fill('/disk/filled')}; sleep 600`, {
      ...most,
      mounts: [{ host_path: outside, mount_path: '/disk', read_only: false }],
    }),
    'no limit': shell(`${fill('/filled')}; sleep 600`, { ...most, disk_gib: null }),
  }
  try {
    for (const spec of [...Object.values(fine), ...Object.values(hideouts)])
      await engine.run(spec, {}, newId())
    const full = async (all: Record<string, ContainerSpec>): Promise<string[]> => {
      const found = await Promise.all(
        Object.entries(all).map(async ([name, { id }]) => ({ name, ...(await engine.find(id)) })),
      )
      return found.filter(({ ended_by }) => ended_by === 'disk_full').map(({ name }) => name)
    }
    await eventually(async () => (await full(hideouts)).length === Object.keys(hideouts).length)
    // They have waited longer for their look.
    expect(await full(fine)).toEqual([])
  } finally {
    await removeTestContainers()
    await rm(outside, { recursive: true })
  }
})
