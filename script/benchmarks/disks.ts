import { execFile } from 'node:child_process'
import { mkdir, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { DiskTransfers, Disks } from '../../drivers/disks.ts'
import { makeQcow2Disks } from '../../drivers/qcow2/disks.ts'
import { type Row, ratios, timed } from './measure.ts'
import type { Stack } from './stack.ts'
import { pipeOverTls } from './tls-pipe.ts'

const run = promisify(execFile)
const rounds = 5
const mebibytes = 500
// The file of random bytes that the benchmarks write.
const noise = 'noise'
const pipePort = 28_800

/** Attaching by the API; writing by the driver, against a plain file; migrating, against one OpenSSL pipe. */
export async function disks(stack: Stack): Promise<Row[]> {
  const folder = await mkdtemp(join(tmpdir(), 'keelson-bench-'))
  try {
    // In memory, so that generating the data does not count.
    const source = await mkdtemp(join('/dev/shm', 'keelson-bench-'))
    try {
      await run('dd', ['if=/dev/urandom', `of=${join(source, noise)}`, 'bs=1M', `count=${mebibytes}`])
      return [...(await attaches(stack)), ...(await writesAndMoves(folder, join(source, noise)))]
    } finally {
      await rm(source, { recursive: true })
    }
  } finally {
    await rm(folder, { recursive: true })
  }
}

/** Attaches to a running container. */
async function attaches(stack: Stack): Promise<Row[]> {
  const figures: number[] = []
  const container = await stack.finish('POST', '/api/v1/containers', {
    name: 'bench-disks',
    image: 'busybox',
    command: ['sleep', '3600'],
    cpu_cores: 0.1,
    memory_mib: 16,
  })
  const disk = await stack.finish('POST', '/api/v1/disks', { name: 'bench-disks', size_gib: 1 })
  const path = `/api/v1/containers/${container.id}/disks`
  for (let round = 0; round < 4 * rounds; round++) {
    const body = { disk_id: disk.id, mount_path: '/data' }
    figures.push(await timed(() => stack.finish('POST', path, body)))
    await stack.finish('DELETE', `${path}/${disk.id}`)
  }
  await stack.finish('DELETE', `/api/v1/containers/${container.id}`)
  await stack.finish('DELETE', `/api/v1/disks/${disk.id}`)
  return [{ what: 'disk attached to a running container', unit: 'ms', figures }]
}

export async function writesAndMoves(folder: string, source: string): Promise<Row[]> {
  const [here, there] = [await host(join(folder, 'here')), await host(join(folder, 'there'))]
  const figures = { plain: [], disk: [], piped: [], convert: [], move: [] } as Record<string, number[]>
  const note = (name: string, ms: number): void => void figures[name]?.push((1_000 * mebibytes) / ms)
  const plain = join(folder, 'plain')
  for (let round = 0; round <= rounds; round++) {
    const id = `bench-${round}`
    await here.disks.create({ id, size_gib: 1 })
    const { host_path } = await here.disks.attach(id)
    const write = (file: string) => run('dd', [`if=${source}`, `of=${file}`, 'bs=1M', 'conv=fsync'])
    const [onPlain, onDisk] = [
      await timed(() => write(plain)),
      await timed(() => write(join(host_path, noise))),
    ]
    await here.disks.detach(id)

    const image = join(here.folder, id, 'disk.qcow2')
    // Unsynced or leftover data would be written during the migration.
    const piped = await timed(() => pipeOverTls(image, `${plain}.piped`, pipePort))
    const converted = await timed(() => run('qemu-img', ['convert', '-O', 'raw', image, `${plain}.raw`]))
    for (const file of [plain, `${plain}.piped`, `${plain}.raw`]) await rm(file)
    const moved = await timed(async () => {
      await there.disks.pull(id, await here.disks.serve(id, 600))
      await here.disks.stopServing(id)
    })
    for (const one of [here, there]) await one.disks.remove(id)
    if (round === 0) continue // warm-up
    note('plain', onPlain)
    note('disk', onDisk)
    note('piped', piped)
    note('convert', converted)
    note('move', moved)
  }
  const of = (name: string): number[] => figures[name] ?? []
  return [
    { what: 'written to a plain file, and synced', unit: 'MiB/s', figures: of('plain') },
    { what: 'written to a disk, and synced', unit: 'MiB/s', figures: of('disk') },
    { what: 'ratio', unit: '', figures: ratios(of('disk'), of('plain')), note: '≥ 0.5' },
    { what: 'migrated: encrypted, checked, and synced', unit: 'MiB/s', figures: of('move') },
    { what: 'one OpenSSL pipe, checked and synced alike', unit: 'MiB/s', figures: of('piped') },
    { what: 'ratio', unit: '', figures: ratios(of('move'), of('piped')), note: '≥ 0.9' },
    { what: 'qemu-img convert -O raw, neither encrypted nor synced', unit: 'MiB/s', figures: of('convert') },
  ]
}

async function host(path: string): Promise<{ folder: string; disks: Disks & DiskTransfers }> {
  const folder = join(path, 'disks')
  await mkdir(folder, { recursive: true })
  const serveOn = { address: '127.0.0.1', ports: [28_700, 28_799] } as const
  return { folder, disks: makeQcow2Disks({ folder, run: join(path, 'run'), serveOn }) }
}
