import { existsSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { makeQcow2Disks } from '../../drivers/qcow2/disks.ts'
import { furtherIndexes } from './further-hosts.ts'
import { disksRun, disksRunOf, type Layout } from './settings.ts'

/** The disk folders of this state folder's hosts. */
const hostsOf = (layout: Layout): { folder: string; run: string }[] => [
  { folder: join(layout.state, 'host/disks'), run: disksRun(layout, 1) },
  ...furtherIndexes(layout).map((index) => ({
    folder: join(layout.state, `host-${index}/disks`),
    run: disksRun(layout, index),
  })),
]

/** Removes the disks of all hosts with their daemons and mounts, even if a container elsewhere still uses them. */
export async function removeDisks(layout: Layout): Promise<void> {
  for (const { folder, run } of hostsOf(layout)) {
    if (!existsSync(folder) && !existsSync(run)) continue
    const disks = makeQcow2Disks({ folder, run, serveOn: { address: '127.0.0.1', ports: [0, 0] } })
    for (const { id, processes } of await disks.list()) {
      await disks.stopServing(id)
      await disks.detach(id).catch(async () => {
        // A process has open files there. Without the disk's daemons it can be detached.
        for (const pid of processes) process.kill(pid, 'SIGKILL')
        await disks.detach(id)
      })
      await disks.remove(id)
    }
  }
  await rm(disksRunOf(layout), { recursive: true, force: true })
}
