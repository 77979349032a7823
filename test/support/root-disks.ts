import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { run } from '../../drivers/system/programs.ts'
import { machineFiles, machineFolder } from './machine-traces.ts'

/** A microVM's root disk as it lies on its host, looked at by the file system's own programs. */
export interface RootDisk {
  /** What its check finds; empty where it is clean, its journal included. */
  faults(): Promise<string>
  /** What a file of it holds. */
  read(path: string): Promise<string>
}

/** Of one that does not run, for as long as `look` takes. Throws when no host has it. */
export async function withRootDisk(id: string, look: (disk: RootDisk) => Promise<void>): Promise<void> {
  const [index] = machineFiles(id).keys()
  if (index === undefined) throw new Error(`${id} is on no host`)
  const folder = await mkdtemp(join(tmpdir(), 'keelson-root-'))
  const raw = join(folder, 'raw')
  try {
    await run('qemu-img', ['convert', '-O', 'raw', join(machineFolder(index, id), 'root.qcow2'), raw])
    await look({
      faults: () =>
        run('e2fsck', ['-f', '-n', raw]).then(
          () => '',
          (error: Error & { cause?: { stdout?: string } }) => error.cause?.stdout ?? error.message,
        ),
      read: (path) => run('debugfs', ['-R', `cat ${path}`, raw]),
    })
  } finally {
    await rm(folder, { recursive: true })
  }
}
