import { mkdir, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { stateFolder } from '../../config.ts'
import type { DiskTransfers, Disks } from '../../drivers/disks.ts'
import { makeQcow2Disks, type Qcow2Settings } from '../../drivers/qcow2/disks.ts'
import { docker } from './containers.ts'
import { runInside } from './inside.ts'
export { kernelTraces } from './kernel-traces.ts'
import { layout } from './stack.ts'

// Hosts with disks: for disks, two folders on one machine are two hosts.

/** Made by images/guest/build. */
const helper = join(process.env['KEELSON_TOOLS'] ?? resolve(stateFolder(), 'tools'), 'guest/helper')

export interface DiskHost {
  settings: Qcow2Settings
  disks: Disks & DiskTransfers
}

const hosts: DiskHost[] = []

/** `run`: the folder where the machines of another driver find its disks. `below`: where the host's own disk is. */
export async function diskHost(run: string | null = null, below = tmpdir()): Promise<DiskHost> {
  const folder = await mkdtemp(join(below, 'disks-'))
  const ports = [layout.apiPort + 800, layout.apiPort + 899] as const
  const serveOn = { address: '127.0.0.1', ports }
  const settings = {
    folder: join(folder, 'disks'),
    run: run ?? join(folder, 'run'),
    serveOn,
    machines: { helper, io: null },
  }
  await mkdir(settings.folder)
  const host = { settings, disks: makeQcow2Disks(settings) }
  hosts.push(host)
  return host
}

/** Removes all disks of all hosts. */
export async function removeDisks(): Promise<void> {
  for (const { disks } of hosts) {
    for (const { id } of await disks.list()) {
      await disks.stopServing(id)
      await disks.detach(id)
      await disks.remove(id)
    }
  }
}

export async function removeHosts(): Promise<void> {
  await removeDisks()
  for (const { settings } of hosts.splice(0)) await rm(join(settings.folder, '..'), { recursive: true })
}

/** Runs a script in a container; returns what it wrote. Throws when it fails. */
export const inContainer = (id: string, script: string): Promise<string> => runInside(docker, id, script)

export async function pidOf(id: string): Promise<number> {
  return (await docker.getContainer(id).inspect()).State.Pid
}
