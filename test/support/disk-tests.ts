import { execFile } from 'node:child_process'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, afterEach, beforeAll, expect } from '@jest/globals'
import type { ContainerSpec } from '../../drivers/containers.ts'
import { newId } from '../../lib/ids.ts'
import { asRoot } from './as-root.ts'
import { containerSpec, engine, removeTestContainers } from './containers.ts'
import { type DiskHost, diskHost, kernelTraces, pidOf, removeDisks, removeHosts } from './disk-hosts.ts'
import { eventually } from './eventually.ts'

// Two hosts with disks, and helpers for the driver's tests.

export const run = promisify(execFile)
export const gibibyte = 1024 ** 3

export let here: DiskHost
export let there: DiskHost

/** Runs tests with the two hosts, which must be empty after each. */
export const withHosts = (name: string, tests: () => void): void =>
  asRoot(name, () => {
    beforeAll(async () => {
      here = await diskHost()
      there = await diskHost()
    })
    afterEach(async () => {
      await removeTestContainers()
      await removeDisks()
      for (const { settings } of [here, there]) {
        expect(await eventually(async () => (await kernelTraces(settings.run)).length === 0)).toBe(true)
        expect(await readdir(settings.folder)).toEqual([])
      }
    })
    afterAll(removeHosts)
    tests()
  })

export async function newDisk(sizeGib: number): Promise<string> {
  const id = newId()
  await here.disks.create({ id, size_gib: sizeGib })
  return id
}

/** Makes a disk on the first host, full of random bytes; returns its id. The size is in MiB. */
export async function written(mebibytes: number): Promise<string> {
  const id = await newDisk(1)
  const { host_path } = await here.disks.attach(id)
  await run('dd', ['if=/dev/urandom', `of=${host_path}/noise`, 'bs=1M', `count=${mebibytes}`])
  await here.disks.detach(id)
  return id
}

export async function restore(id: string, snapshot: string): Promise<string> {
  const restored = newId()
  await here.disks.create({ id: restored, size_gib: 1, from: { disk_id: id, snapshot } })
  return restored
}

/** Starts a container; returns its name on the engine. */
export async function running(spec: ContainerSpec = containerSpec({ cpu_cores: 1 })): Promise<string> {
  await engine.run({ ...spec, cpu_cores: 1 }, {}, newId())
  return `keelson-${spec.id}`
}

/** Shell text that waits for the disk on /data: its folder is there before it is mounted. */
export const untilMounted = "until grep -q ' /data ' /proc/mounts; do sleep 0.05; done"

export const attachTo = async (container: string, id: string, mount_path = '/data') =>
  here.disks.attach(id, { pid: await pidOf(container), mount_path })

export const imageOf = (id: string, host = here): string => join(host.settings.folder, id, 'disk.qcow2')

/** Checks that the image and the file system have no errors. */
export async function isSound(id: string): Promise<void> {
  const raw = `${here.settings.run}/checked.raw`
  await run('qemu-img', ['check', imageOf(id)])
  await run('qemu-img', ['convert', '-O', 'raw', imageOf(id), raw])
  await run('xfs_repair', ['-n', '-f', raw])
  await run('rm', [raw])
}
