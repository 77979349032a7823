import { randomUUID } from 'node:crypto'
import { mkdir, mkdtemp, readdir, rm, truncate, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { afterAll, afterEach, beforeAll, expect } from '@jest/globals'
import { readSettings } from '../../config.ts'
import type { LogFiles } from '../../drivers/log-files.ts'
import type { FoundMachine, MachineEngine, MachineSpec, MachineTransfers } from '../../drivers/machines.ts'
import type { QemuSettings } from '../../drivers/qemu/host.ts'
import { listGroups } from '../../drivers/linux/groups.ts'
import { MachineHost } from '../../drivers/qemu/host.ts'
import { openQemuMachines } from '../../drivers/qemu/engine.ts'
import { processesWith, run } from '../../drivers/system/programs.ts'
import { newId } from '../../lib/ids.ts'
import { asRoot } from './as-root.ts'
import { testTenant } from './containers.ts'
import { eventually } from './eventually.ts'
import { guest } from './guest-files.ts'
import { layout } from './stack.ts'

// A host with machines, and helpers for the driver's tests.

export let settings: QemuSettings
type Machines = MachineEngine & MachineTransfers & { files: LogFiles }

export let machines: Machines

/** Ends the worker and starts the next one, with the files of another build of the guest if there is one. */
export async function anotherWorker(built: string = settings.guest): Promise<void> {
  await machines.close()
  machines = await openQemuMachines({ ...settings, guest: built })
}

const settingsIn = (folder: string): QemuSettings => ({
  hostId: randomUUID(),
  dockerHost: readSettings('host').KEELSON_DOCKER_HOST,
  folder: join(folder, 'machines'),
  run: join(folder, 'run'),
  guest,
  plugs: join(folder, 'plugs'),
  vmBuild: resolve('images/vm/build'),
  serveOn: { address: '127.0.0.1', ports: [layout.apiPort + 700, layout.apiPort + 799] },
})

/** Runs `work` with a second host, whose files are below `above`. */
export async function withOtherHost(
  work: (there: Machines) => Promise<void>,
  above: string = tmpdir(),
): Promise<void> {
  const folder = await mkdtemp(join(above, 'machines-'))
  const there = await openQemuMachines(settingsIn(folder))
  try {
    await work(there)
  } finally {
    for (const { id } of await there.list()) await there.remove(id, { discard: true })
    await there.close()
    await rm(folder, { recursive: true })
  }
}

/** Runs `work` with a file system of this size. */
export async function withFileSystem(mib: number, work: (folder: string) => Promise<void>): Promise<void> {
  const above = await mkdtemp(join(tmpdir(), 'fs-'))
  const [image, folder] = [join(above, 'image'), join(above, 'fs')]
  await mkdir(folder)
  try {
    await writeFile(image, '')
    await truncate(image, mib * 1024 ** 2)
    await run('mkfs.ext4', ['-q', '-F', '-m', '0', image])
    await run('mount', ['-o', 'loop', image, folder])
    await work(folder)
  } finally {
    await run('umount', [folder]).catch(() => {}) // may not be mounted
    await rm(above, { recursive: true })
  }
}

/** Runs tests with a host, on which nothing may be left after each. */
export const withMachines = (name: string, tests: () => void): void =>
  asRoot(name, () => {
    let folder: string
    beforeAll(async () => {
      folder = await mkdtemp(join(tmpdir(), 'machines-'))
      settings = settingsIn(folder)
      machines = await openQemuMachines(settings)
    })
    afterEach(async () => {
      for (const { id } of await machines.list()) await machines.remove(id, { discard: true })
      expect(await traces()).toEqual([])
    })
    afterAll(async () => {
      await machines.close()
      await rm(folder, { recursive: true })
    })
    tests()
  })

/** Everything of this host's machines on this machine: files, processes, control groups. */
export async function traces(id = ''): Promise<string[]> {
  const of = (names: string[]): string[] => names.filter((name) => name.includes(id))
  const files = await readdir(settings.folder)
  const running = await readdir(settings.run).catch(() => [])
  const { mark } = new MachineHost(settings as never, null as never, null as never, null as never)
  const found = async (): Promise<string[]> => {
    const processes = await processesWith(`${settings.run}/${id}`)
    return processes.map(({ args }) => args.join(' ').slice(0, 80))
  }
  return [
    ...of(files.filter((name) => !['images', '.kernels', '.probed.json', '.transfers'].includes(name))),
    ...of(running.filter((name) => name !== 't')),
    ...(await readdir(join(settings.folder, '.transfers')).catch(() => [])),
    ...(await found()),
    ...of(await listGroups(mark)),
  ]
}

/** The spec of a small microVM with a new id; by default it sleeps. */
export const machineSpec = (over: Partial<MachineSpec> = {}): MachineSpec => ({
  id: newId(),
  tenant_id: testTenant,
  name: 'test',
  kind: 'microvm',
  image: 'busybox',
  image_digest: null,
  command: ['sleep', '600'],
  entrypoint: [],
  cpu_cores: 1,
  memory_mib: 64,
  root_disk_gib: 1,
  restart_policy: 'always',
  log_cap_mib: 10,
  nics: [],
  disks: [],
  ...over,
})

/** The spec of a microVM with a shell command. */
export const script = (text: string, over: Partial<MachineSpec> = {}): MachineSpec =>
  machineSpec({ command: ['sh', '-c', text], ...over })

export const start = (
  spec: MachineSpec,
  configVars: Record<string, string> = {},
  operationId: string = newId(),
): Promise<FoundMachine> => machines.run(spec, configVars, operationId)

export async function linesOf(id: string): Promise<string[]> {
  const lines: string[] = []
  for await (const { line } of machines.logs(id, {})) lines.push(line)
  return lines
}

export const said = (id: string, text: string): Promise<boolean> =>
  eventually(async () => (await linesOf(id)).some((line) => line.includes(text)))

/**
 * The minimum difference in ms between its clock and this machine's: it shows whole seconds, and the request takes
 * time.
 */
export async function clockOff(id: string): Promise<number> {
  const before = Date.now()
  const shown = Number(await inMachine(id, 'date +%s')) * 1000
  return Math.max(0, before - (shown + 1_000), shown - Date.now())
}

/** Runs a script in a machine; returns its output. Throws if the script fails. */
export async function inMachine(id: string, text: string, on: MachineEngine = machines): Promise<string> {
  const terminal = await on.exec(id, ['sh', '-c', text], { cols: 80, rows: 24 })
  let output = ''
  for await (const data of terminal.stream) output += String(data)
  const code = await terminal.exitCode()
  if (code !== 0) throw new Error(`exit code ${code}: ${output}`)
  return output.replaceAll('\r\n', '\n').trim()
}
