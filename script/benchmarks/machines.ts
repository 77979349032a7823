import { randomUUID } from 'node:crypto'
import { copyFile, mkdir, mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { stateFolder } from '../../config.ts'
import type { MachineEngine, MachineSpec } from '../../drivers/machines.ts'
import { livingProcess, run, until } from '../../drivers/system/programs.ts'
import { Agent } from '../../drivers/qemu/agent.ts'
import { qemu } from '../../drivers/qemu/boot.ts'
import { statusOf } from '../../drivers/qemu/memory.ts'
import { makeMachinePlaces, type MachinePlace } from '../../drivers/qemu/places.ts'
import { forgetProcess, inGroups } from '../../drivers/qemu/processes.ts'
import { endsAtOnceMs } from '../../drivers/qemu/runs.ts'
import { openQemuMachines } from '../../drivers/qemu/engine.ts'
import { Qmp } from '../../drivers/system/qmp.ts'
import { newId } from '../../lib/ids.ts'
import { median, type Row, timed } from './measure.ts'
import type { Stack } from './stack.ts'

const rounds = 7
const execs = 40
const mebibyte = 1024 ** 2

/** MicroVMs by the driver, against QEMU alone with the same arguments. */
export async function machines({ dockerHost }: Pick<Stack, 'dockerHost'>): Promise<Row[]> {
  const folder = await mkdtemp(join(tmpdir(), 'keelson-bench-'))
  const settings = {
    hostId: randomUUID(),
    dockerHost,
    folder: join(folder, 'machines'),
    run: join(folder, 'run'),
    guest: join(process.env['KEELSON_TOOLS'] ?? resolve(stateFolder(), 'tools'), 'guest'),
  }
  const engine = await openQemuMachines(settings)
  // A separate folder: the driver removes machines that it did not start from its own.
  const placeOf = makeMachinePlaces(settings.folder, join(folder, 'alone'))
  try {
    await engine.prepare('microvm', 'busybox')
    return [
      ...(await starts(engine, settings.run, placeOf)),
      ...(await suspensions(engine, 256)),
      ...(await suspensions(engine, 512)),
      ...(await inside(engine)),
    ]
  } finally {
    for (const { id } of await engine.list()) await engine.remove(id, { discard: true })
    await engine.close()
    await rm(folder, { recursive: true })
  }
}

const microvm = (memory_mib: number): MachineSpec => ({
  id: newId(),
  tenant_id: newId(),
  name: 'bench',
  kind: 'microvm',
  image: 'busybox',
  image_digest: null,
  command: ['sleep', '3600'],
  entrypoint: [],
  cpu_cores: 1,
  memory_mib,
  root_disk_gib: 1,
  restart_policy: 'always',
  log_cap_mib: 10,
  nics: [],
  disks: [],
})

/** The time until the command of a new machine runs, and until a machine resumed from a memory file answers. */
async function starts(
  engine: MachineEngine,
  runFolder: string,
  placeOf: (id: string) => MachinePlace,
): Promise<Row[]> {
  const figures = { run: [], rawBegun: [], rawRun: [], resume: [], rawResume: [], fork: [] } as Record<
    string,
    number[]
  >
  for (let round = 0; round <= rounds; round++) {
    const note = (name: string, ms: number): void => void (round > 0 && figures[name]?.push(ms)) // the first warms up
    const spec = microvm(64)
    const place = placeOf(spec.id)
    note('run', await timed(() => engine.run(spec, {}, newId())))
    const running = await livingProcess((await engine.find(spec.id))?.pid ?? 0)
    const args = (running?.args ?? []).map((word) => word.replaceAll(join(runFolder, spec.id), place.run))
    await engine.suspend(spec.id)
    const kept = join(place.folder, 'kept')
    await copyFile(place.memory, kept)
    note('resume', await timed(() => engine.resume(spec)))
    await engine.stop(spec.id, 0)

    const begun = performance.now()
    const start = async (agent: Agent): Promise<void> => {
      await agent.ask('start', { argv: spec.command })
      note('rawBegun', performance.now() - begun)
      // The command starts once. Asked again, the agent answers when the command is at work, as for the driver.
      await agent.ask('start', { argv: spec.command, settle_ms: endsAtOnceMs.tcg })
    }
    note('rawRun', await timed(() => alone(place, args, { answering: start })))
    await forgetProcess(place, mark)
    const load = async (): Promise<void> => {
      const qmp = await Qmp.connect(place.monitor)
      await qmp.execute('migrate-incoming', { uri: `exec:cat ${kept}` })
      await until(async () => (await statusOf(qmp)) !== 'inmigrate', 60_000, 'The memory is not read')
      await qmp.execute('cont')
      qmp.close()
    }
    note('rawResume', await timed(() => alone(place, [...args, '-incoming', 'defer'], { started: load })))
    await forgetProcess(place, mark)
    await engine.run(spec, {}, newId())
    await engine.suspend(spec.id)
    note('fork', await timed(() => engine.fork(spec.id, microvm(64), {}, newId())))
    for (const { id } of await engine.list()) await engine.remove(id, { discard: true })
  }
  const of = (name: string): number[] => figures[name] ?? []
  // Without KVM, two boots of one machine differ by more than the overhead: comparing pairs would show nothing.
  const more = (name: string, other: string): number[] => [median(of(name)) - median(of(other))]
  return [
    { what: 'microVM of 64 MiB created, until its command is at work', unit: 'ms', figures: of('run') },
    {
      what: 'QEMU alone, same arguments and limits, until its command is at work',
      unit: 'ms',
      figures: of('rawRun'),
    },
    { what: 'more, at p50', unit: 'ms', figures: more('run', 'rawRun'), note: '≤ 200' },
    {
      what: 'QEMU alone, until its command has a process, and has done nothing yet',
      unit: 'ms',
      figures: of('rawBegun'),
    },
    { what: 'more than that, at p50', unit: 'ms', figures: more('run', 'rawBegun') },
    { what: 'microVM resumed, until it has answered', unit: 'ms', figures: of('resume') },
    {
      what: 'QEMU alone with the same memory, until the agent answers',
      unit: 'ms',
      figures: of('rawResume'),
    },
    { what: 'more, at p50', unit: 'ms', figures: more('resume', 'rawResume'), note: '≤ 200' },
    { what: 'microVM forked, until it has answered', unit: 'ms', figures: of('fork') },
  ]
}

const mark = 'bench'
const limits = { cpu_cores: 1, memory_mib: 512 }
type SocketName = 'agent' | 'console' | 'monitor' | 'orders'

interface Then {
  started?: () => Promise<void>
  answering?: (agent: Agent) => Promise<unknown>
}

/** Runs QEMU without the driver and without what confines it, with the same limits. */
async function alone(place: MachinePlace, [, ...args]: string[], then: Then): Promise<void> {
  await mkdir(place.run, { recursive: true })
  const sockets = args.map((word) =>
    word.replace(/^socket,id=(\w+),fd=\d+/, (_, name: SocketName) => `socket,id=${name},path=${place[name]}`),
  )
  sockets.splice(sockets.indexOf('-sandbox'), 2, '-daemonize', '-pidfile', place.pidFile)
  await run('sh', await inGroups(mark, place.id, limits, [qemu, ...sockets]))
  await then.started?.()
  const listener = { lastLine: () => 0, onLines: () => 0, onStatus: () => {} }
  const agent = await Agent.connect(place.agent, listener)
  await agent.ready(300_000)
  await then.answering?.(agent)
  agent.close()
}

async function suspensions(engine: MachineEngine, memoryMib: number): Promise<Row[]> {
  const spec = microvm(memoryMib)
  const [times, sizes]: [number[], number[]] = [[], []]
  await engine.run(spec, {}, newId())
  for (let round = 0; round < rounds; round++) {
    times.push(await timed(() => engine.suspend(spec.id)))
    sizes.push(((await engine.find(spec.id))?.suspended?.memory_bytes ?? 0) / mebibyte)
    await engine.resume(spec)
  }
  await engine.remove(spec.id, { discard: true })
  const what = `idle microVM of ${memoryMib} MiB suspended`
  return [
    { what, unit: 'ms', figures: times },
    { what: `${what}: its file`, unit: 'MiB', figures: sizes },
  ]
}

/** The round trip of a command, and the memory of a machine on the host besides its own. */
async function inside(engine: MachineEngine): Promise<Row[]> {
  const spec = microvm(64)
  const { pid } = await engine.run(spec, {}, newId())
  const trips: number[] = []
  for (let round = 0; round < execs; round++)
    trips.push(
      await timed(async () => {
        const terminal = await engine.exec(spec.id, ['true'], { cols: 80, rows: 24 })
        terminal.stream.resume()
        await terminal.exitCode()
      }),
    )
  const status = await readFile(`/proc/${pid}/status`, 'utf8')
  const resident = Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) / 1024
  await engine.remove(spec.id, { discard: true })
  return [
    { what: '`true` run in a microVM, there and back', unit: 'ms', figures: trips, note: 'p50 < 20' },
    {
      what: 'what a microVM of 64 MiB takes on its host beside those',
      unit: 'MiB',
      figures: [resident - 64],
    },
  ]
}
