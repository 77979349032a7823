import { mkdir, rm } from 'node:fs/promises'
import { setTimeout as delay } from 'node:timers/promises'
import type { PullOptions } from '../containers.ts'
import { CommandFailed, EngineRefused, EngineUnavailable } from '../errors.ts'
import type { FoundMachine, MachineKind, MachineSpec } from '../machines.ts'
import { AgentFault, type Agent } from './agent.ts'
import { nicPorts, qemuArguments } from './arguments.ts'
import { plugDisk } from './devices.ts'
import type { MachineHost } from './host.ts'
import { growRoot } from './guest-images.ts'
import { type BaseImage, makeOverlay } from './images.ts'
import type { Link } from './links.ts'
import { readMachineLogs } from './log-reader.ts'
import { CommandStatus, WatchedStatus } from './messages.ts'
import { orderFor } from './orders.ts'
import { publishPorts } from './ports.ts'
import { awaitEnd, endQemu, findQemu, forgetProcess, startQemu } from './processes.ts'
import { type Launched, type MachineRecord, newRecord, writeRecord } from './records.ts'
import { recover } from './recover.ts'
import { prepareVm, writeSeed } from './vms.ts'
import { imageSize } from '../qcow2/images.ts'
import { publish } from '../system/files.ts'

// Starts and stops machines.

const gibibyte = 1024 ** 3

// A start takes three seconds without KVM on an idle host; thirty at once on two cores take a minute and a half.
const bootsWithinMs = 300_000
const startsWithinMs = 60_000
/**
 * A command that ends sooner has ended at once, unless it was seen waiting: milliseconds of the machine's processor time,
 * since a busy host gives it little. Without KVM, a shell alone takes 150 ms to start and end.
 */
export const endsAtOnceMs = { kvm: 50, tcg: 400 }
// A command that waits for a disk uses no processor time.
const watchesForMs = 10_000

/** See MachineEngine.run. */
export async function runMachine(
  host: MachineHost,
  spec: MachineSpec,
  configVars: Record<string, string>,
  operationId: string,
): Promise<FoundMachine> {
  const { id } = spec
  await recover(host, id)
  const before = await host.record(id)
  const place = host.placeOf(id)
  if (before && (await findQemu(place)) !== null) {
    await publishPorts(host, id, { atStart: true })
    await begin(host, before, configVars, operationId)
    return host.present(id)
  }
  const keepsRoot =
    before?.spec.image === spec.image && [null, before.image_digest].includes(spec.image_digest)
  const digest = spec.image_digest ?? (keepsRoot ? (before?.image_digest ?? null) : null)
  const base = await prepareImage(host, spec.kind, spec.image, { digest })
  const bytes = spec.root_disk_gib * gibibyte
  if (bytes < base.size_bytes)
    throw new EngineRefused(`The image needs a root disk of ${leastGib(base)} GiB or more`)
  const record: MachineRecord = {
    ...newRecord({
      spec,
      image_digest: base.config.digest,
      kernel: (keepsRoot ? before?.kernel : null) ?? (await host.boot()).kernelDigest,
      operation_id: operationId,
      launched: launchedFor(spec),
    }),
    ...(before && keepsRoot ? originOf(before) : {}),
    started_at: before?.started_at ?? null,
  }
  await mkdir(place.folder, { recursive: true })
  if (before && !keepsRoot) await rm(place.root, { force: true })
  await writeRecord(place, record)
  await rm(place.memory, { force: true })
  try {
    if ((await imageSize(place.root)) === null) {
      await makeOverlay(base.file, `${place.root}.new`, bytes)
      await publish(`${place.root}.new`, place.root)
    } else await growRoot(host, place, base, bytes)
    if (spec.kind === 'vm') await writeSeed(place, record, spec.user_data ?? null)
    await launch(host, record, null)
    await begin(host, record, configVars, operationId)
  } catch (error) {
    await withdraw(host, record, operationId)
    throw error
  }
  return host.present(id)
}

/** Fields that last as long as the root disk. */
const originOf = ({ engine_id, created_at, made_by, lines_before, ports }: MachineRecord) => ({
  engine_id,
  created_at,
  made_by,
  lines_before,
  ports,
})

export const prepareImage = (
  host: MachineHost,
  kind: MachineKind,
  image: string,
  options: PullOptions,
): Promise<BaseImage> =>
  kind === 'vm' ? prepareVm(host, image, options) : host.images.prepare(image, options)

export const leastGib = ({ size_bytes }: Pick<BaseImage, 'size_bytes'>): number =>
  Math.ceil(size_bytes / gibibyte)

export function launchedFor(spec: MachineSpec): Launched {
  if (spec.nics.length > nicPorts) throw new EngineRefused(`A machine has at most ${nicPorts} NICs`)
  return {
    cpu_cores: spec.cpu_cores,
    memory_mib: spec.memory_mib,
    nics: Array.from({ length: nicPorts }, (_, port) => spec.nics[port] ?? null),
    disks: spec.disks.map(({ disk_id }) => disk_id),
  }
}

/**
 * Starts QEMU with the devices of the launch and the machine's own kernel, and opens its ports. With `memory`, a file, QEMU
 * waits for `loadMemory`. Throws PortInUse, KernelMissing.
 */
export async function launch(host: MachineHost, record: MachineRecord, memory: string | null): Promise<Link> {
  const { spec, launched } = record
  if (!launched) throw new EngineUnavailable('The machine was never started')
  const place = host.placeOf(spec.id)
  host.drop(spec.id)
  if (record.ended_by) await host.change(spec.id, { ended_by: null })
  const boot = { ...(await host.boot()), ...(record.kernel && (await host.kernels.find(record.kernel))) }
  const { id, kind } = spec
  const base = await host.images.find(record.image_digest)
  const { plugs } = host.settings
  if (plugs) await mkdir(plugs, { recursive: true })
  await startQemu(place, {
    ...qemuArguments({ id, kind, launched, place, boot, memory }),
    helper: boot.helper,
    mark: host.mark,
    io: host.settings.io,
    launched,
    readable: [
      boot.kernel,
      boot.initramfs,
      ...(base ? [base.file] : []),
      ...(kind === 'vm' ? [place.seed] : []),
      ...(plugs ? [plugs] : []),
    ],
    devices: boot.accelerator === 'kvm' ? ['/dev/kvm'] : [],
  })
  const link = await host.link(spec.id)
  for (const [lun, diskId] of launched.disks.entries()) {
    const disk = spec.disks.find(({ disk_id }) => disk_id === diskId)
    if (disk) await plugDisk(link.monitor, disk, lun)
  }
  await publishPorts(host, spec.id, { atStart: true })
  return link
}

/** Starts the machine's command if it is not running. */
async function begin(
  host: MachineHost,
  record: MachineRecord,
  configVars: Record<string, string>,
  operationId: string,
): Promise<void> {
  const { id, kind } = record.spec
  const link = await host.link(id)
  const started_at = new Date().toISOString()
  if (kind === 'vm') {
    if (record.operation_id !== operationId || record.started_at === null)
      await host.change(id, { operation_id: operationId, started_at })
    host.changed(id)
    return
  }
  const agent = await link.answering(bootsWithinMs)
  if (link.status?.phase !== 'waiting') return
  await host.change(id, { started_at, operation_id: operationId })
  const settle_ms = endsAtOnceMs[(await host.boot()).accelerator]
  const order = { ...(await orderFor(host, record, configVars)), settle_ms }
  link.learn(await startCommand(agent, order, () => host.cpuMs(id)))
  host.changed(id)
  await refuseAtOnce(host, link, record)
}

async function startCommand(
  agent: Agent,
  order: { settle_ms: number },
  cpuMs: () => Promise<number>,
): Promise<CommandStatus> {
  const ask = async (verb: string, args: object): Promise<WatchedStatus> =>
    WatchedStatus.parse(await agent.ask(verb, args, { withinMs: startsWithinMs }))
  try {
    const clock_delta_ns = await agent.clockDelta()
    let watched = await ask('start', { ...order, clock_delta_ns })
    // From here on the machine does little but run the command.
    const enoughMs = (await cpuMs()) + order.settle_ms
    const deadline = performance.now() + watchesForMs
    while (!watched.settled && performance.now() < deadline && (await cpuMs()) < enoughMs)
      watched = await ask('watch', { at_most_ms: order.settle_ms })
    return CommandStatus.parse(watched)
  } catch (error) {
    if (!(error instanceof AgentFault)) throw error
    if (error.code !== 'not_started') throw new EngineUnavailable('The machine could not be set up', error)
    throw new CommandFailed('command_not_started', `The command could not be started: ${error.message}`, null)
  }
}

const lastLines = 5

/** Whether the command has ended since its start. On a busy host the agent may have started it again already. */
const hasEnded = ({ phase, restarts }: CommandStatus): boolean =>
  phase === 'ended' || phase === 'restarting' || restarts > 0

async function refuseAtOnce(host: MachineHost, link: Link, { spec }: MachineRecord): Promise<void> {
  const { status } = link
  if (!status || !hasEnded(status)) return
  if (status.exit_code === 0 && spec.restart_policy !== 'always') return
  const words: string[] = []
  const lastWords = { lines: lastLines }
  // Its output may still be arriving.
  for (let tries = 0; tries < 20 && words.length === 0; tries++) {
    for await (const { line } of readMachineLogs(
      link.logs.source,
      () => null,
      lastWords,
      async () => false,
    ))
      words.push(line)
    if (words.length === 0) await delay(50)
  }
  const said = words.join('\n').slice(-500).trim()
  const message = `The command ended at once with exit code ${status.exit_code}${status.oom_killed ? ', for lack of memory' : ''}`
  throw new CommandFailed('exited_at_once', said ? `${message}: ${said}` : message, status.exit_code)
}

/** Cleans up after a failure. Removes what this operation made; stops what existed before. */
async function withdraw(host: MachineHost, { spec }: MachineRecord, operationId: string): Promise<void> {
  const { id } = spec
  const place = host.placeOf(id)
  host.drop(id)
  await forgetProcess(place, host.mark)
  const record = await host.record(id)
  if (record?.made_by !== operationId) return
  await host.settings.beforeRemoval(id)
  await host.removeFiles(place)
}

// Time to unmount file systems after the command's grace period.
const unmountsWithinMs = 10_000

/** See MachineEngine.stop. */
export async function stopMachine(host: MachineHost, id: string, graceSec: number): Promise<void> {
  await recover(host, id)
  const place = host.placeOf(id)
  const record = await host.record(id)
  if (!record) return
  if (record.suspended) {
    await rm(place.memory, { force: true })
    await host.change(id, { suspended: null, resumed_over: null, exit_code: null })
  }
  if ((await findQemu(place)) === null) return
  const link = await host.link(id)
  const graceMs = graceSec * 1000
  if (record.spec.kind === 'vm') await link.monitor.execute('system_powerdown').catch(() => {})
  // Not awaited: it ends without answering.
  else if (link.agent.isReady) link.agent.ask('poweroff', { grace_ms: graceMs }).catch(() => {})
  const waits = record.spec.kind === 'vm' ? graceMs : link.agent.isReady ? graceMs + unmountsWithinMs : 0
  await awaitEnd(place, waits).catch(() => {}) // then kill it
  await endQemu(place)
  host.drop(id)
  await forgetProcess(place, host.mark)
  host.changed(id)
}
