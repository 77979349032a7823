import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { run } from '../../drivers/system/programs.ts'
import { machineFiles, machineFolder } from './machine-traces.ts'

/** A microVM's root disk on its host, read by the file system's own tools. */
export interface RootDisk {
  /** The findings of a check; empty if the file system and its journal are clean. */
  faults(): Promise<string>
  /** The content of a file. */
  read(path: string): Promise<string>
}

/** Opens the root disk of a stopped machine while `look` runs. Throws if no host has it. */
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
