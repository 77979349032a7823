import { randomBytes } from 'node:crypto'
import { constants } from 'node:fs'
import { copyFile, mkdir } from 'node:fs/promises'
import { EngineRefused, EngineUnavailable, InstanceNotRunning, MemoryUnusable } from '../errors.ts'
import type { FoundMachine, MachineSpec, Suspended } from '../machines.ts'
import { setLink } from './devices.ts'
import type { MachineHost } from './host.ts'
import { goOn, hasMemory, loadMemory, promiseRoom, publishMemory, rootState, saveMemory } from './memory.ts'
import { endQemu, findQemu, forgetProcess } from './processes.ts'
import { type MachineRecord, newRecord, writeRecord } from './records.ts'
import { forAgent, identity } from './orders.ts'
import { launch } from './runs.ts'
import { finishResume, recover } from './recover.ts'
import { usedBy } from './samples.ts'
import { writeSeed } from './vms.ts'
import { sync } from '../system/files.ts'

// Suspends, resumes and forks machines. The order of steps makes a kill at any point safe: the memory file is complete
// and synced before the process ends, gets its name only then, and is removed only after the machine has answered
// again.

/** See MachineEngine.suspend. */
export async function suspendMachine(
  host: MachineHost,
  id: string,
  signal?: AbortSignal,
): Promise<FoundMachine> {
  await recover(host, id)
  const record = await host.needed(id)
  const place = host.placeOf(id)
  if (record.suspended) return host.present(id)
  if ((await findQemu(place)) === null) throw new InstanceNotRunning(id)
  const link = await host.link(id)
  const boot = await host.boot()
  const used_before = await usedBy(host, record, link.monitor)
  const release = await promiseRoom(host, place, record.launched?.memory_mib ?? 0)
  try {
    const memory_bytes = await saveMemory(link.monitor, place, signal)
    await host.change(id, {
      used_before,
      suspended: {
        at: new Date().toISOString(),
        memory_bytes,
        root_disk_bytes: await host.allocated(place.root),
        engine_version: boot.qemuVersion,
        tsc_khz: boot.tscKhz,
        root_image: record.image_digest,
      },
    })
    await publishMemory(place)
  } catch (error) {
    if (await hasMemory(place)) throw error
    await goOn(link.monitor, place) // first, because it frees space for the record
    await host.change(id, { suspended: null, used_before: record.used_before })
    throw error
  } finally {
    release()
  }
  host.drop(id)
  await endQemu(place)
  await forgetProcess(place, host.mark)
  host.changed(id)
  return host.present(id)
}

// Measurements of one counter differ by some millionths.
const sameTsc = 1e-4

/** Throws MemoryUnusable. */
export async function needUsable(host: MachineHost, suspended: Suspended): Promise<void> {
  const { qemuVersion, tscKhz, accelerator } = await host.boot()
  if (suspended.engine_version !== qemuVersion)
    throw new MemoryUnusable(`QEMU ${suspended.engine_version} wrote it, and ${qemuVersion} cannot read it`)
  if (accelerator === 'tcg' && Math.abs(suspended.tsc_khz / tscKhz - 1) > sameTsc)
    throw new MemoryUnusable('it was saved on another kind of processor')
}

/** See MachineEngine.resume. */
export async function resumeMachine(host: MachineHost, spec: MachineSpec): Promise<FoundMachine> {
  const { id } = spec
  await recover(host, id)
  const place = host.placeOf(id)
  const record = await host.needed(id)
  if (!record.suspended) {
    if ((await findQemu(place)) !== null) return host.present(id)
    throw new MemoryUnusable('the machine ran or was stopped after it was saved')
  }
  await needUsable(host, record.suspended)
  const launched = record.launched && {
    ...record.launched,
    nics: record.launched.nics.map((nic) => nic && (spec.nics.find(({ id: one }) => one === nic.id) ?? nic)),
  }
  const present = await host.change(id, { spec, launched })
  try {
    const { monitor } = await launch(host, present, place.memory)
    await loadMemory(monitor)
    await host.change(id, { resumed_over: await rootState(place) })
    await monitor.execute('cont')
    await finishResume(host, id)
  } catch (error) {
    // It stays suspended if it has not written anything.
    await recover(host, id)
    throw error
  }
  host.changed(id)
  return host.present(id)
}

/** See MachineEngine.fork. Must run in the turns of both machines. */
export async function forkMachine(
  host: MachineHost,
  fromId: string,
  spec: MachineSpec,
  configVars: Record<string, string>,
  operationId: string,
): Promise<FoundMachine> {
  const { id } = spec
  await recover(host, id)
  const there = await host.record(id)
  const place = host.placeOf(id)
  if (there && (await findQemu(place)) !== null) return host.present(id)
  if (there) throw new EngineRefused('The machine is there already')
  await recover(host, fromId)
  const [from, fromPlace] = [await host.needed(fromId), host.placeOf(fromId)]
  if (!from.suspended || !from.launched) throw new EngineRefused('Only a suspended machine can be forked')
  if (from.launched.disks.some((disk) => disk !== null))
    throw new EngineRefused('A machine that was suspended with disks cannot be forked')
  await needUsable(host, from.suspended)
  const others = from.launched.nics.filter((nic) => nic !== null)
  if (others.length !== spec.nics.length) throw new EngineRefused('A fork needs as many NICs as its source')
  let next = 0
  const nics = from.launched.nics.map((nic) => nic && (spec.nics[next++] ?? null))
  const { cpu_cores, memory_mib } = from.launched
  const fresh = newRecord({
    spec: { ...spec, cpu_cores, memory_mib, disks: [] },
    image_digest: from.image_digest,
    kernel: from.kernel,
    operation_id: operationId,
    launched: { ...from.launched, nics },
  })
  const record: MachineRecord = {
    ...fresh,
    started_at: fresh.created_at,
    restart_count: from.restart_count,
    lines_before: host.lastLine(fromPlace, from),
    forking: true,
  }
  await mkdir(place.folder, { recursive: true })
  await writeRecord(place, record)
  try {
    await copyFile(fromPlace.root, place.root, constants.COPYFILE_FICLONE)
    await sync(place.root)
    if (spec.kind === 'vm') await writeSeed(place, record, spec.user_data ?? null)
    const { monitor } = await launch(host, record, fromPlace.memory)
    await loadMemory(monitor)
    const ports = nics.flatMap((nic, port) => (nic ? [port] : []))
    // The fork must not receive packets for the original's addresses.
    for (const port of ports) await setLink(monitor, port, false)
    await monitor.execute('cont')
    await renew(host, { id, spec, configVars, others: others.map(({ mac_address }) => mac_address) })
    for (const port of ports) await setLink(monitor, port, true)
    await host.change(id, { forking: false })
  } catch (error) {
    host.drop(id)
    await forgetProcess(place, host.mark)
    await host.removeFiles(place)
    throw error
  }
  host.changed(id)
  return host.present(id)
}

const answersWithinMs = 60_000
const seedBytes = 64

interface Renewal {
  id: string
  spec: MachineSpec
  configVars: Record<string, string>
  /** The MAC addresses that its NICs still have. */
  others: string[]
}

/** Gives the fork its own identity. */
async function renew(host: MachineHost, { id, spec, configVars, others }: Renewal): Promise<void> {
  const link = await host.link(id)
  const record = await host.needed(id)
  const base = await host.images.find(record.image_digest)
  const agent = await link.answering(answersWithinMs)
  const its = await identity(spec, configVars, base?.config.env ?? [])
  const nics = await Promise.all(
    spec.nics.map(async (nic, index) => ({ ...(await forAgent(nic)), was: others[index] })),
  )
  try {
    await agent.ask('renew', { ...its, nics, seed: randomBytes(seedBytes).toString('base64') })
    await agent.setClock()
  } catch (error) {
    throw new EngineUnavailable('The fork could not be separated from its source', error)
  }
}
