import { EngineRefused, InstanceNotFound, InstanceNotRunning } from '../errors.ts'
import type { MachineDisk, MachineNic } from '../machines.ts'
import { asMachineFault } from './agent.ts'
import { nicPorts } from './arguments.ts'
import { plugDisk, plugNic, unplugDisk, unplugNic } from './devices.ts'
import type { MachineHost } from './host.ts'
import type { Link } from './links.ts'
import { forAgent } from './orders.ts'
import { publishPorts } from './ports.ts'
import { findQemu } from './processes.ts'
import { recover } from './recover.ts'

// Disks and NICs of a machine: in its record, in QEMU and in the guest. All functions but the first two must run in
// the machine's turn.

export const agentWithinMs = 10_000

/** The connection to a running machine. Throws InstanceNotFound, InstanceNotRunning. */
export async function running(host: MachineHost, id: string): Promise<Link> {
  const found = await host.look(id)
  if (!found) throw new InstanceNotFound(id)
  if (found.state !== 'running') throw new InstanceNotRunning(id)
  return host.link(id)
}
/** Sends a request to the machine's agent. */
export async function askAgent(
  host: MachineHost,
  id: string,
  verb: string,
  args: unknown = null,
  mountPath = '',
): Promise<void> {
  const link = await running(host, id)
  const agent = await link.answering(agentWithinMs)
  await agent.ask(verb, args).catch((error: unknown) => {
    throw asMachineFault(error, mountPath)
  })
}

export async function attachDisk(host: MachineHost, id: string, disk: MachineDisk): Promise<void> {
  await recover(host, id)
  const { spec, launched, suspended } = await host.needed(id)
  if (suspended) throw new EngineRefused('Disks of a suspended machine cannot change')
  const disks = [...spec.disks.filter(({ disk_id }) => disk_id !== disk.disk_id), disk]
  if ((await findQemu(host.placeOf(id))) === null || !launched) {
    await host.change(id, { spec: { ...spec, disks } })
    return
  }
  const slots = launched.disks.includes(disk.disk_id)
    ? launched.disks
    : withEntry(launched.disks, disk.disk_id)
  await host.change(id, { spec: { ...spec, disks }, launched: { ...launched, disks: slots } })
  const { monitor } = await host.link(id)
  try {
    await plugDisk(monitor, disk, slots.indexOf(disk.disk_id))
    if (spec.kind === 'microvm')
      await askAgent(host, id, 'mount', {
        serial: disk.disk_id,
        path: disk.mount_path,
        read_only: disk.read_only,
      })
  } catch (error) {
    await detachDisk(host, id, disk.disk_id).catch(() => {}) // report the first error
    throw error
  }
}

export async function detachDisk(host: MachineHost, id: string, diskId: string): Promise<void> {
  await recover(host, id)
  const record = await host.record(id)
  if (!record?.launched) return
  const { spec, launched } = record
  if (record.suspended) throw new EngineRefused('Disks of a suspended machine cannot change')
  if ((await findQemu(host.placeOf(id))) !== null) {
    const disk = spec.disks.find(({ disk_id }) => disk_id === diskId)
    if (disk && spec.kind === 'microvm') {
      const path = disk.mount_path
      await askAgent(host, id, 'unmount', { serial: diskId, path }, path)
    }
    await unplugDisk((await host.link(id)).monitor, diskId)
  }
  await host.change(id, {
    spec: { ...spec, disks: spec.disks.filter(({ disk_id }) => disk_id !== diskId) },
    launched: { ...launched, disks: launched.disks.map((one) => (one === diskId ? null : one)) },
  })
}

export async function attachNic(host: MachineHost, id: string, nic: MachineNic): Promise<void> {
  await recover(host, id)
  const { spec, launched, suspended } = await host.needed(id)
  if (suspended) throw new EngineRefused('NICs of a suspended machine cannot change')
  const nics = [...spec.nics.filter((one) => one.id !== nic.id), nic]
  if (nics.length > nicPorts) throw new EngineRefused(`A machine has at most ${nicPorts} NICs`)
  if ((await findQemu(host.placeOf(id))) === null || !launched) {
    await host.change(id, { spec: { ...spec, nics } })
    return
  }
  const held = launched.nics.findIndex((one) => one?.id === nic.id)
  const port = held >= 0 ? held : launched.nics.indexOf(null)
  const slots = launched.nics.map((one, index) => (index === port ? nic : one))
  await host.change(id, { spec: { ...spec, nics }, launched: { ...launched, nics: slots } })
  const { monitor } = await host.link(id)
  try {
    const { helper } = await host.boot()
    await plugNic(monitor, { helper, orders: host.placeOf(id).orders }, port, nic)
    if (spec.kind === 'microvm') await askAgent(host, id, 'nic', await forAgent(nic))
    await publishPorts(host, id, { atStart: false })
  } catch (error) {
    await detachNic(host, id, nic.id).catch(() => {}) // report the first error
    throw error
  }
}

export async function detachNic(host: MachineHost, id: string, nicId: string): Promise<void> {
  await recover(host, id)
  const record = await host.record(id)
  if (!record?.launched) return
  if (record.suspended) throw new EngineRefused('NICs of a suspended machine cannot change')
  const { spec, launched } = record
  const port = launched.nics.findIndex((nic) => nic?.id === nicId)
  const runs = (await findQemu(host.placeOf(id))) !== null
  if (port >= 0 && runs) await unplugNic((await host.link(id)).monitor, port)
  await host.change(id, {
    spec: { ...spec, nics: spec.nics.filter((nic) => nic.id !== nicId) },
    launched: { ...launched, nics: launched.nics.map((nic) => (nic?.id === nicId ? null : nic)) },
  })
  if (runs) await publishPorts(host, id, { atStart: false }) // forward to the next NIC
}

/** Puts the entry in the first free slot. */
function withEntry(slots: (string | null)[], entry: string): (string | null)[] {
  const free = slots.indexOf(null)
  return free >= 0 ? slots.map((slot, index) => (index === free ? entry : slot)) : [...slots, entry]
}
