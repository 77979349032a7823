import { rm } from 'node:fs/promises'
import type { MachineHost } from './host.ts'
import { goOn, hasMemory, rootState, statusOf } from './memory.ts'
import { findQemu, forgetProcess } from './processes.ts'
import type { MachineRecord } from './records.ts'

// Repairs a machine after a worker was killed, before any other work on it. Afterwards it is running, suspended, or
// stopped.

const startsWithinMs = 60_000
const vmAnswersWithinMs = 10_000

/** Must run in the machine's turn. */
export async function recover(host: MachineHost, id: string): Promise<void> {
  const place = host.placeOf(id)
  const record = await host.record(id)
  if (!record) {
    await forgetProcess(place, host.mark)
    await host.removeFiles(place)
    return
  }
  const runs = (await findQemu(place)) !== null
  const memory = await hasMemory(place)
  if (record.forking) return withdrawFork(host, id)
  if (memory && record.resumed_over) return recoverResume(host, id, record, runs)
  if (memory) {
    if (runs) host.drop(id)
    await forgetProcess(place, host.mark)
    return
  }
  if (record.suspended || record.resumed_over) await host.change(id, { suspended: null, resumed_over: null })
  if (!runs) {
    host.drop(id)
    await forgetProcess(place, host.mark)
    await rm(place.unfinishedMemory, { force: true })
    return
  }
  const link = await host.link(id)
  if ((await statusOf(link.monitor)) !== 'running') await goOn(link.monitor, place)
}

async function withdrawFork(host: MachineHost, id: string): Promise<void> {
  const place = host.placeOf(id)
  host.drop(id)
  await forgetProcess(place, host.mark)
  await host.removeFiles(place)
}

/** Handles a worker killed just before or after the resumed machine ran. */
async function recoverResume(
  host: MachineHost,
  id: string,
  record: MachineRecord,
  runs: boolean,
): Promise<void> {
  const place = host.placeOf(id)
  const link = runs ? await host.link(id) : null
  if (link && (await statusOf(link.monitor)) === 'running') return finishResume(host, id)
  host.drop(id)
  await forgetProcess(place, host.mark)
  if (await isAsBefore(host, id, record)) await host.change(id, { resumed_over: null })
  else {
    await rm(place.memory, { force: true })
    await host.change(id, { suspended: null, resumed_over: null })
  }
}

/** Whether the root disk is unchanged since the suspension. Writes to plugged disks are not detected. */
export async function isAsBefore(host: MachineHost, id: string, record: MachineRecord): Promise<boolean> {
  const { mtime_ns, size } = await rootState(host.placeOf(id))
  const was = record.resumed_over
  const hasDisks = record.launched?.disks.some((disk) => disk !== null) ?? false
  return !was || (!hasDisks && was.mtime_ns === mtime_ns && was.size === size)
}

/** Removes the memory after the resumed machine has answered. */
export async function finishResume(host: MachineHost, id: string): Promise<void> {
  const link = await host.link(id)
  const { kind } = (await host.needed(id)).spec
  try {
    const agent = await link.answering(kind === 'vm' ? vmAnswersWithinMs : startsWithinMs)
    await agent.setClock()
  } catch (error) {
    // A VM's agent is a program in the tenant's system, and may be missing.
    if (kind === 'microvm' || link.isClosed) throw error
  }
  await rm(host.placeOf(id).memory, { force: true })
  await host.change(id, { suspended: null, resumed_over: null })
}
