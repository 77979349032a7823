import { type Dirent, existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { machinesRunOf } from '../../script/lib/settings.ts'
import { kernelTraces } from './kernel-traces.ts'
import { layout } from './stack.ts'

// What this machine has of a microVM on any of the stack's hosts, without our records.

/** The paths in a folder; none if there is no such folder. */
export const within = (folder: string): string[] => entriesIn(folder).map(({ name }) => join(folder, name))
const foldersIn = (folder: string): string[] =>
  entriesIn(folder).flatMap((entry) => (entry.isDirectory() ? [join(folder, entry.name)] : []))

/** Another test may remove the folder meanwhile. */
function entriesIn(folder: string): Dirent[] {
  try {
    return readdirSync(folder, { withFileTypes: true })
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return []
    throw error
  }
}

/** A host's folder, by its index; 1 is this machine. */
export const hostFolder = (index: number): string =>
  join(layout.state, index === 1 ? 'host' : `host-${index}`)

const folderOf = (index: number): string => join(hostFolder(index), 'machines')

export const hostIndexes = (): number[] =>
  readdirSync(layout.state).flatMap((name) => {
    const found = /^host(?:-(\d+))?$/.exec(name)
    return found ? [Number(found[1] ?? 1)] : []
  })

/** The control groups of all hosts' things, in both versions of the kernel's interface: see drivers/linux/groups.ts. */
export const groups = (): string[] =>
  ['', 'cpu', 'memory']
    .map((controller) => join('/sys/fs/cgroup', controller, 'keelson'))
    .flatMap(foldersIn)
    .flatMap(foldersIn)

/** Files, sockets, control groups, processes, mounts and loop devices whose names contain this id. */
export async function machineTraces(id: string): Promise<string[]> {
  const folders = hostIndexes()
    .map(folderOf)
    .flatMap((folder) => [folder, join(folder, '.transfers')])
  const runs = within(machinesRunOf(layout)).flatMap((run) => [run, join(run, 't')])
  const files = [...folders, ...runs].flatMap(within)
  return [...[...files, ...groups()].filter((path) => path.includes(id)), ...(await kernelTraces(id))]
}

export const machineFolder = (index: number, id: string): string => join(folderOf(index), id)

/** A machine's files, by the indexes of the hosts that have any. */
export const machineFiles = (id: string): Map<number, string[]> =>
  new Map(
    hostIndexes().flatMap((index) => {
      const folder = machineFolder(index, id)
      return existsSync(folder) ? [[index, readdirSync(folder).toSorted()] as const] : []
    }),
  )

/** Whether some host has this file of the machine, such as `memory` or `memory.part`. */
export const hasMachineFile = (id: string, name: string): boolean =>
  [...machineFiles(id).values()].some((files) => files.includes(name))
