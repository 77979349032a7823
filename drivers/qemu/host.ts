import { readdir, rm, stat } from 'node:fs/promises'
import { setTimeout as delay } from 'node:timers/promises'
import { makeNamedQueues } from '../../lib/queue.ts'
import type { IoLimits } from '../linux/block-devices.ts'
import { markOf } from '../linux/groups.ts'
import { EngineUnavailable, InstanceNotFound, InstanceNotRunning } from '../errors.ts'
import type { FoundMachine, MachineSpec } from '../machines.ts'
import { nodeName, rootNode } from './arguments.ts'
import type { HostBoot } from './boot.ts'
import { type ImagePulls, machineImage, type makeRootImages } from './images.ts'
import type { makeKernels } from './kernels.ts'
import { Link } from './links.ts'
import { LogWriter } from './logs.ts'
import { hasMemory, type PromisedRoom } from './memory.ts'
import type { CommandStatus } from './messages.ts'
import { makeMachinePlaces, type MachinePlace } from './places.ts'
import { findQemu } from './processes.ts'
import { healthOf, type MachineRecord, readRecord, writeRecord } from './records.ts'
import { nullIfMissing } from '../system/files.ts'
import type { HostPorts } from '../system/host-ports.ts'
import { processStat } from '../system/process-stat.ts'
import type { ServeOn } from '../qcow2/transfers.ts'

export interface QemuSettings {
  /** The host that owns these machines. */
  hostId: string
  /** Unpacks images, see DockerSettings. */
  dockerHost: string
  /** How images are pulled; by default without limits. */
  pulls?: ImagePulls | null
  /** Holds the machines and the images' root disks. */
  folder: string
  /** For sockets and pid files: a short path, preferably one that is emptied at boot (`/run/…`). */
  run: string
  /** The folder made by images/guest/build. */
  guest: string
  /** The program that makes VM images (images/vm/build). Without it, there are no VMs. */
  vmBuild?: string | null
  /** What the root disks of images leave free on the disk with `folder`. */
  imagesLeaveBytes?: number
  /** Output beyond a machine's cap that may wait on the host for archiving. */
  logBacklogMib?: number
  /** Where other hosts fetch machines. Without it, none are served. */
  serveOn?: ServeOn | null
  /** The host's ports. Without it, none are published. */
  ports?: HostPorts | null
  /** The host's namespace in /run/netns; by default this process's. */
  hostNamespace?: string | null
  /** The run folder of the disks that machines use, see Qcow2Settings. Without it, machines have no disks. */
  plugs?: string | null
  /** Of each machine, on the disk below `folder`; by default none. */
  io?: IoLimits | null
  /** Called before an ended machine is removed. If it throws, the machine stays. */
  beforeRemoval?: (id: string) => Promise<void>
}

const roomEveryMs = 5_000

/** Machines of a host: state shared by the parts of the driver. */
export class MachineHost implements PromisedRoom {
  readonly settings: Required<QemuSettings>
  readonly boot: () => Promise<HostBoot>
  readonly images: ReturnType<typeof makeRootImages>
  readonly kernels: ReturnType<typeof makeKernels>
  readonly placeOf: (id: string) => MachinePlace
  /** Part of the names of kernel objects, which all hosts of this machine share. */
  readonly mark: string
  /** Calls for one machine run one after another. */
  readonly inTurn = makeNamedQueues()
  promisedBytes = 0
  readonly #links = new Map<string, Link>()
  readonly #watchers = new Set<(id: string | null) => void>()
  readonly #recording = makeNamedQueues()
  /** Command statuses waiting to be recorded. */
  readonly #statuses = new Map<string, CommandStatus>()
  /** Called when a machine ends by itself, and when its command ends. */
  onGone: (id: string) => void = () => {}
  onEnded: (id: string) => void = () => {}
  /** Called when QEMU has stopped a machine, since a write found no room. */
  onFull: (id: string, link: Link) => void = () => {}
  /** Called for each new connection, to start work that lasts as long. */
  onLinked: (id: string, link: Link) => void = () => {}

  constructor(
    settings: Required<QemuSettings>,
    boot: () => Promise<HostBoot>,
    images: ReturnType<typeof makeRootImages>,
    kernels: ReturnType<typeof makeKernels>,
  ) {
    this.settings = settings
    this.boot = boot
    this.images = images
    this.kernels = kernels
    this.placeOf = makeMachinePlaces(settings.folder, settings.run)
    this.mark = markOf(settings.folder)
  }

  async ids(): Promise<string[]> {
    const names = (await readdir(this.settings.folder).catch(nullIfMissing)) ?? []
    return names.filter((name) => name !== 'images' && !name.startsWith('.'))
  }

  record(id: string): Promise<MachineRecord | null> {
    return readRecord(this.placeOf(id))
  }

  async needed(id: string): Promise<MachineRecord> {
    const record = await this.record(id)
    if (!record) throw new InstanceNotFound(id)
    return record
  }

  /** Changes an existing record. Serialized, because the machine's own reports also change it. */
  change(id: string, patch: Partial<MachineRecord>): Promise<MachineRecord> {
    return this.#recording(id, async () => {
      const record = { ...(await this.needed(id)), ...patch }
      await writeRecord(this.placeOf(id), record)
      return record
    })
  }

  /** The connection to a running machine. Throws InstanceNotFound, InstanceNotRunning, EngineUnavailable. */
  async link(id: string): Promise<Link> {
    const there = this.#links.get(id)
    if (there && !there.isClosed) return there
    const record = await this.needed(id)
    const place = this.placeOf(id)
    if ((await findQemu(place)) === null) throw new InstanceNotRunning(id)
    const opened: Link = await Link.open(place, record, this.settings.logBacklogMib, {
      onStatus: (status) => void this.#onStatus(id, status),
      onEnding: (ended_by) => void this.note(id, { ended_by }),
      onFull: () => this.onFull(id, opened),
      onGone: () => this.onGone(id),
    })
    const other = this.#links.get(id)
    if (other && !other.isClosed) {
      opened.close()
      return other
    }
    this.#links.set(id, opened)
    this.onLinked(id, opened)
    return opened
  }

  presentLink(id: string): Link | null {
    const link = this.#links.get(id)
    return link && !link.isClosed ? link : null
  }

  drop(id: string): void {
    this.#links.get(id)?.close()
    this.#links.delete(id)
  }

  async #onStatus(id: string, status: CommandStatus): Promise<void> {
    if (status.phase === 'waiting') return
    const isBeingNoted = this.#statuses.has(id)
    this.#statuses.set(id, status)
    // Only the last status counts: a guest may send any number meanwhile.
    if (isBeingNoted) return
    try {
      let noted: CommandStatus
      do {
        noted = this.#statuses.get(id) ?? status
        await this.#noteStatus(id, noted)
      } while (noted !== this.#statuses.get(id))
    } finally {
      this.#statuses.delete(id)
    }
  }

  async #noteStatus(id: string, status: CommandStatus): Promise<void> {
    await this.note(id, {
      exit_code: status.phase === 'running' ? null : status.exit_code,
      oom_killed: status.oom_killed,
      restart_count: status.restarts,
    })
    this.changed(id)
    if (status.phase === 'ended') this.onEnded(id)
  }

  /** Records a machine's report, unless the machine has been removed. On a full disk, waits for room. */
  async note(id: string, patch: Partial<MachineRecord>): Promise<void> {
    for (;;)
      try {
        await this.change(id, patch)
        return
      } catch (error) {
        if (error instanceof InstanceNotFound) return
        if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error
        await delay(roomEveryMs, undefined, { ref: false })
      }
  }

  changed(id: string | null): void {
    for (const watcher of this.#watchers) watcher(id)
  }

  watch(watcher: (id: string | null) => void): () => void {
    this.#watchers.add(watcher)
    return () => this.#watchers.delete(watcher)
  }

  close(): void {
    for (const id of this.#links.keys()) this.drop(id)
  }

  async look(id: string): Promise<FoundMachine | null> {
    const place = this.placeOf(id)
    const record = await readRecord(place)
    if (!record) return null
    const [memory, pid] = await Promise.all([hasMemory(place), findQemu(place)])
    const { spec, launched } = record
    const isSuspended = memory && record.suspended !== null && record.resumed_over === null
    const runs = pid !== null && !isSuspended && !record.forking
    const { root_image: _, ...suspended } = record.suspended ?? { root_image: '' }
    return {
      id,
      kind: spec.kind,
      ...(spec.kind === 'vm' && spec.image === machineImage ? { machine: true } : {}),
      engine_id: record.engine_id,
      state: stateOf(record, { isSuspended, runs }),
      exit_code: runs ? null : record.exit_code,
      oom_killed: record.oom_killed,
      restart_count: record.restart_count,
      started_at: record.started_at,
      pid: runs ? pid : null,
      image_digest: record.image_digest,
      operation_id: record.operation_id,
      suspended: isSuspended ? (suspended as FoundMachine['suspended']) : null,
      pending: runs || isSuspended ? differences(spec, launched) : [],
      health: healthOf(record),
      ended_by: runs ? null : record.ended_by,
      full_disks: runs ? fullDisks(spec, this.presentLink(id)) : [],
      ports: record.ports,
    }
  }

  async present(id: string): Promise<FoundMachine> {
    const found = await this.look(id)
    if (!found) throw new EngineUnavailable('The machine’s record is missing')
    return found
  }

  async cpuMs(id: string): Promise<number> {
    const pid = await findQemu(this.placeOf(id))
    return pid === null ? 0 : (processStat(pid)?.cpuMs ?? 0)
  }

  /** The log file being written, by engine id. */
  logPath(engineId: string): string | null {
    for (const { logs } of this.#links.values())
      if (logs.source.engine_id === engineId) return logs.source.path
    return null
  }

  /** The number of the last line in the machine's files. */
  lastLine(place: MachinePlace, record: MachineRecord): number {
    const logs = new LogWriter(place, record, this.settings.logBacklogMib)
    logs.close()
    return logs.last
  }

  /** Bytes that a file uses on the host. */
  async allocated(file: string): Promise<number> {
    return ((await stat(file).catch(nullIfMissing))?.blocks ?? 0) * 512
  }

  /** Removes the machine's folder. Serialized with `change`, whose new file would be removed before it has its name. */
  removeFiles(place: MachinePlace): Promise<void> {
    return this.#recording(place.id, () => rm(place.folder, { recursive: true, force: true }))
  }
}

function stateOf(
  record: MachineRecord,
  { isSuspended, runs }: { isSuspended: boolean; runs: boolean },
): FoundMachine['state'] {
  if (isSuspended) return 'suspended'
  if (runs) return 'running'
  return record.started_at === null ? 'created' : 'exited'
}

const fullDisks = ({ disks }: MachineSpec, link: Link | null): string[] => [
  ...(link?.full.has(rootNode) ? ['root'] : []),
  ...disks.map(({ disk_id }) => disk_id).filter((diskId) => link?.full.has(nodeName(diskId))),
]

function differences(spec: MachineSpec, launched: MachineRecord['launched']): FoundMachine['pending'] {
  const sizes = ['cpu_cores', 'memory_mib'] as const
  return launched ? sizes.filter((size) => spec[size] !== launched[size]) : []
}
