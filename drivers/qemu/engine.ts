import { mkdir, statfs } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import type { Duplex } from 'node:stream'
import { EngineRefused } from '../errors.ts'
import type { LogFiles } from '../log-files.ts'
import type { MachineEngine, MachineTransfers } from '../machines.ts'
import {
  agentWithinMs,
  askAgent,
  attachDisk,
  attachNic,
  detachDisk,
  detachNic,
  running,
} from './attachments.ts'
import { describeQemu, findBoot, type HostBoot } from './boot.ts'
import { keepChecking } from './health.ts'
import { MachineHost, type QemuSettings } from './host.ts'
import { makeRootImages } from './images.ts'
import { makeKernels } from './kernels.ts'
import { readMachineLogs } from './log-reader.ts'
import { logSource, makeMachineLogFiles } from './logs.ts'
import { publishPorts } from './ports.ts'
import { forgetProcess } from './processes.ts'
import { awaitRoom } from './room.ts'
import { leastGib, prepareImage, runMachine, stopMachine } from './runs.ts'
import { openMachinePipe } from './pipes.ts'
import { portKey } from '../system/host-ports.ts'
import { recover } from './recover.ts'
import { sampleOf } from './samples.ts'
import { forkMachine, resumeMachine, suspendMachine } from './suspend.ts'
import { openMachineTerminal } from './terminals.ts'
import { discardBuilds, vmImages } from './vms.ts'
import { pullMachine, serveMachine, stopServingMachine } from './transfers.ts'

const gibibyte = 1024 ** 3

/** Machines on QEMU, 7.2 or later; needs root. Connects to all running machines before it returns. */
export async function openQemuMachines(
  settings: QemuSettings,
): Promise<MachineEngine & MachineTransfers & { files: LogFiles }> {
  const folder = resolve(settings.folder)
  const known = {
    logBacklogMib: 0,
    serveOn: null,
    ports: null,
    pulls: null,
    hostNamespace: null,
    plugs: null,
    io: null,
    vmBuild: null,
    imagesLeaveBytes: 0,
    beforeRemoval: async () => {},
    ...settings,
    folder,
    run: resolve(settings.run),
    guest: resolve(settings.guest),
    ...(settings.vmBuild ? { vmBuild: resolve(settings.vmBuild) } : {}),
  }
  await mkdir(folder, { recursive: true })
  const { hostId, dockerHost, pulls, imagesLeaveBytes: freeBytes } = known
  const ofImages = { hostId, dockerHost, pulls, freeBytes, used: () => used('image_digest') }
  const images = makeRootImages(join(folder, 'images'), ofImages)
  const kernels = makeKernels(join(folder, '.kernels'))
  let boot: Promise<HostBoot> | null = null
  const findOnce = (): Promise<HostBoot> => {
    boot ??= findBoot(known.guest, folder, kernels).catch((error: unknown) => {
      boot = null // retry next time: it may be installed by then
      throw error
    })
    return boot
  }
  const host = new MachineHost(known, findOnce, images, kernels)
  const doing = <T>(id: string, work: () => Promise<T>): Promise<T> => host.inTurn(id, work)
  const quietly = (id: string, work: () => Promise<unknown>): void =>
    void doing(id, work)
      .catch(() => {}) // the next call recovers it
      .finally(() => host.changed(id))
  host.onGone = (id) => quietly(id, () => recover(host, id))
  // A microVM ends with its command, after the host has all its output.
  host.onEnded = (id) =>
    quietly(id, async () => {
      // It may have been restarted in the meantime.
      if (host.presentLink(id)?.status?.phase === 'ended') await stopMachine(host, id, 0)
    })
  host.onFull = (id, link) => void awaitRoom(host, id, link).catch(() => {}) // it has ended
  host.onLinked = (id, link) => void keepChecking(host, id, link).catch(() => {}) // its record is gone
  await discardBuilds(host)
  // In parallel: a machine on a busy host may take seconds to answer, and thirty in turn would take minutes.
  const recovering = (await host.ids()).map((id) => doing(id, () => recover(host, id)).catch(() => {}))
  await Promise.all(recovering)

  const records = async () => Promise.all((await host.ids()).map((id) => host.record(id)))
  const used = async (of: 'image_digest' | 'kernel') =>
    (await records()).flatMap((record) => record?.[of] ?? [])
  known.ports?.addEngine(async (exceptId) => {
    const others = (await records()).filter((record) => record?.spec.id !== exceptId)
    return others.flatMap((record) => record?.ports ?? []).map(portKey)
  })

  return {
    kinds: known.vmBuild ? ['microvm', 'vm'] : ['microvm'],
    vmImages,
    files: makeMachineLogFiles(
      async (id) => {
        const record = await host.record(id)
        return record && logSource(host.placeOf(id), record, known.logBacklogMib)
      },
      (engineId) => host.logPath(engineId),
    ),

    prepare: async (kind, image, options = {}) => {
      const base = await prepareImage(host, kind, image, options)
      return { image_digest: base.config.digest, least_disk_gib: leastGib(base) }
    },

    run: (spec, configVars, operationId) =>
      doing(spec.id, () => runMachine(host, spec, configVars, operationId)),

    find: (id) => host.look(id),

    list: async () => {
      const found = await Promise.all((await host.ids()).map((id) => host.look(id)))
      return found.filter((one) => one !== null)
    },

    ids: () => host.ids(),

    sample: async (machines) => {
      const samples = await Promise.all(machines.map(({ id }) => sampleOf(host, id)))
      return samples.filter((one) => one !== null)
    },

    stop: async (id, graceSec, signal) => {
      signal?.throwIfAborted()
      const ended = doing(id, () => stopMachine(host, id, graceSec))
      ended.catch(() => {})
      const aborted = new Promise<never>((_, reject) =>
        signal?.addEventListener('abort', () => reject(signal.reason as Error), { once: true }),
      )
      await Promise.race([ended, aborted])
    },

    reboot: (spec, configVars, operationId, graceSec) =>
      doing(spec.id, async () => {
        const record = await host.needed(spec.id)
        if (record.operation_id !== operationId) await stopMachine(host, spec.id, graceSec)
        return runMachine(host, spec, configVars, operationId)
      }),

    resize: (id, size) =>
      doing(id, async () => {
        const { spec } = await host.needed(id)
        await host.change(id, { spec: { ...spec, ...size } })
        const link = host.presentLink(id)
        if (link?.agent.isReady) await link.agent.ask('restart_policy', size.restart_policy)
        return host.present(id)
      }),

    suspend: (id, signal) => doing(id, () => suspendMachine(host, id, signal)),

    resume: (spec) => doing(spec.id, () => resumeMachine(host, spec)),

    fork: (fromId, spec, configVars, operationId) =>
      doing(fromId, () => doing(spec.id, () => forkMachine(host, fromId, spec, configVars, operationId))),

    remove: (id, { engineId, discard = false } = {}) =>
      doing(id, async () => {
        const record = await host.record(id)
        if (engineId !== undefined && engineId !== record?.engine_id) return
        host.drop(id)
        await forgetProcess(host.placeOf(id), host.mark)
        await stopServingMachine(host, id)
        if (record && !discard) await known.beforeRemoval(id)
        await host.removeFiles(host.placeOf(id))
        host.changed(id)
      }),

    attachDisk: (id, disk) => doing(id, () => attachDisk(host, id, disk)),

    detachDisk: (id, diskId) => doing(id, () => detachDisk(host, id, diskId)),

    growDisk: async (id, diskId) => {
      const { spec } = await host.needed(id)
      // A VM's system has mounted the disk, and must not lose it.
      if (spec.kind === 'vm') return
      const disk = spec.disks.find(({ disk_id }) => disk_id === diskId)
      if (!disk) throw new EngineRefused('The machine has no such disk')
      await doing(id, async () => {
        await detachDisk(host, id, diskId)
        await attachDisk(host, id, disk)
      })
      if (host.presentLink(id)) await askAgent(host, id, 'grow', { serial: diskId, path: disk.mount_path })
    },

    attachNic: (id, nic) => doing(id, () => attachNic(host, id, nic)),

    detachNic: (id, nicId) => doing(id, () => detachNic(host, id, nicId)),

    exec: async (id, command, size) => {
      const link = await running(host, id)
      return openMachineTerminal(await link.answering(agentWithinMs), command, size)
    },

    pipe: async (id, command) => {
      const link = await running(host, id)
      return openMachinePipe(await link.answering(agentWithinMs), command)
    },

    console: async (id): Promise<Duplex> => (await running(host, id)).console(),

    async *logs(id, options) {
      const record = await host.needed(id)
      const source = logSource(host.placeOf(id), record, known.logBacklogMib)
      const writer = () => host.presentLink(id)?.logs ?? null
      yield* readMachineLogs(source, writer, options, async () => (await host.record(id)) !== null)
    },

    freeze: (id) => askAgent(host, id, 'freeze'),

    thaw: async (id) => {
      if (host.presentLink(id)) await askAgent(host, id, 'thaw')
    },

    watch: async (onChange, signal) => {
      if (signal.aborted) return
      const stop = host.watch(onChange)
      onChange(null)
      await new Promise<void>((done) => signal.addEventListener('abort', () => done(), { once: true }))
      stop()
    },

    describe: async () => {
      const { blocks, bsize } = await statfs(folder)
      return describeQemu(await findOnce(), Math.floor((blocks * bsize) / gibibyte))
    },

    serve: (id, seconds, signal) => doing(id, () => serveMachine(host, id, known.serveOn, seconds, signal)),

    stopServing: (id) => doing(id, () => stopServingMachine(host, id)),

    pull: (id, from, { signal } = {}) => doing(id, () => pullMachine(host, id, from, signal)),

    mend: async () => {
      const publishing = (await records()).flatMap((one) => (one?.spec.ports?.length ? [one.spec.id] : []))
      const mended = publishing.map((id) =>
        doing(id, async () => {
          if ((await host.look(id))?.state === 'running') await publishPorts(host, id, { atStart: false })
        }),
      )
      await Promise.allSettled(mended) // wait for all before throwing
      await Promise.all(mended)
    },

    removeUnusedImages: async (unusedMs) => {
      const removed = await images.removeUnused(unusedMs)
      const { kernelDigest } = await findOnce()
      return [
        ...removed,
        ...(await kernels.removeUnused([kernelDigest, ...(await used('kernel'))], unusedMs)),
      ]
    },

    close: async () => host.close(),
  }
}
