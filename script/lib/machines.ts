import { existsSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { openQemuMachines } from '../../drivers/qemu/engine.ts'
import { furtherIndexes } from './further-hosts.ts'
import { type Layout, machinesRun, machinesRunOf } from './settings.ts'

/** Removes the microVMs and VMs of this state folder's hosts, which outlive their host workers. */
export async function removeMachines(layout: Layout): Promise<void> {
  for (const index of [1, ...furtherIndexes(layout)]) {
    const folder = join(layout.state, index === 1 ? 'host/machines' : `host-${index}/machines`)
    if (!existsSync(folder)) continue
    const machines = await openQemuMachines({
      // No image is needed here.
      hostId: '',
      dockerHost: 'unix:///var/run/docker.sock',
      folder,
      run: machinesRun(layout, index),
      guest: join(layout.tools, 'guest'),
    })
    for (const { id } of await machines.list()) {
      await machines.stopServing(id)
      await machines.remove(id, { discard: true })
    }
    await machines.close()
  }
  await rm(machinesRunOf(layout), { recursive: true, force: true })
}
