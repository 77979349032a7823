import { spawn } from 'node:child_process'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { existsSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Duplex } from 'node:stream'
import { buffer, text } from 'node:stream/consumers'
import { zstdCompressSync, zstdDecompressSync } from 'node:zlib'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import type { ContainerScripts } from '../../../drivers/copies.ts'
import { EngineUnavailable, InstanceNotRunning } from '../../../drivers/errors.ts'
import { makeContainerScripts } from '../../../drivers/swarm/container-scripts.ts'
import { newId } from '../../../lib/ids.ts'

// The scripts of a machine, here. Its `docker` runs the commands of a container here too.

let folder: string
let programs: string

const docker = `#!/bin/sh
case $1 in
ps) echo one ;;
inspect) echo self ;;
exec)
  while [ "$1" != /bin/sh ]; do shift; done
  exec "$@"
  ;;
esac
`

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'scripts-'))
  programs = await withPrograms({ docker })
})
afterAll(() => rm(folder, { recursive: true }))

/** A folder with these programs, for the search path of a machine. */
async function withPrograms(all: Record<string, string>): Promise<string> {
  const path = await mkdtemp(join(folder, 'programs-'))
  for (const [name, program] of Object.entries(all))
    await writeFile(join(path, name), program, { mode: 0o755 })
  return path
}

function scriptsWith(search = programs) {
  const pipe = async (_: string, [program = '', ...args]: string[]) => {
    const env = { PATH: `${search}:${process.env['PATH']}` }
    const child = spawn(program, args, { env, stdio: ['pipe', 'pipe', 'inherit'] })
    child.stdin.on('error', () => {}) // it need not read
    return Duplex.from({ readable: child.stdout, writable: child.stdin })
  }
  return makeContainerScripts(dial, pipe)
}

const dial = () => Promise.reject(new Error('no engine is asked'))

const container = { machine_id: 'one', label: { name: 'service', value: 'one' } }
const data = Buffer.from('a line that repeats\n'.repeat(50_000))
const fifoOf = (mark: string): string => `/dev/shm/keelson-script-${mark}`

async function read(scripts: ContainerScripts, options?: Parameters<ContainerScripts['open']>[3]) {
  const { stream, ended } = await scripts.open(container, 'true', newId(), options)
  stream.end()
  await text(stream)
  return ended()
}

async function dump(script: string, search?: string) {
  const mark = newId()
  const { stream, ended } = await scriptsWith(search).open(container, script, mark, { zstd: 'output' })
  stream.end()
  const output = await buffer(stream)
  expect(existsSync(fifoOf(mark))).toBe(false)
  return { output, ...(await ended()) }
}

async function restore(script: string, input: Buffer, search?: string) {
  const mark = newId()
  const { stream, ended } = await scriptsWith(search).open(container, script, mark, { zstd: 'input' })
  stream.on('error', () => {}) // the script need not read
  stream.end(input)
  await text(stream)
  expect(existsSync(fifoOf(mark))).toBe(false)
  return ended()
}

test('a script that says little is read, with both outputs and its end', async () => {
  const said = scriptsWith().read(container, 'printf "é\\nb"; echo why >&2; exit 4', newId())
  expect(await said).toEqual({ exit_code: 4, output: 'é\nb', errors: 'why\n' })
})

test('what ends while it is read is unavailable', async () => {
  const search = await withPrograms({ docker: docker.replace('exec "$@"', 'kill -9 $PPID; sleep 1') })
  const mark = newId()
  await expect(scriptsWith(search).read(container, 'true', mark)).rejects.toBeInstanceOf(EngineUnavailable)
  for (const left of ['output', 'errors']) await rm(`/run/keelson-script-${mark}.${left}`, { force: true })
})

test('no container is none that runs', async () => {
  const scripts = scriptsWith(await withPrograms({ docker: docker.replace('echo one', 'true') }))
  await expect(scripts.read(container, 'true', newId())).rejects.toBeInstanceOf(InstanceNotRunning)
  await expect(read(scripts)).rejects.toBeInstanceOf(InstanceNotRunning)
})

test('a container that ends before its dump begins does not run', async () => {
  const scripts = scriptsWith(await withPrograms({ docker: docker.replace('echo self', 'echo') }))
  await expect(read(scripts, { zstd: 'output' })).rejects.toBeInstanceOf(InstanceNotRunning)
})

test('a dump comes compressed, with its size and what the script said', async () => {
  const file = join(folder, 'data')
  await writeFile(file, data)
  const { output, ...end } = await dump(`cat ${file}; echo done >&2`)
  expect(zstdDecompressSync(output).equals(data)).toBe(true)
  expect(end).toEqual({ exit_code: 0, errors: 'done\n', output_bytes: data.length })
})

test('a dump without data ends', async () => {
  const { output, exit_code } = await dump('true')
  expect([zstdDecompressSync(output).length, exit_code]).toEqual([0, 0])
})

test.each(['echo some; exit 3', 'exec >&2; exit 3'])('the failure of `%s` is told', async (script) => {
  expect(await dump(script)).toMatchObject({ exit_code: 3 })
})

test('a dump whose container cannot run the script fails', async () => {
  const refusing = docker.replace('exec "$@"', 'echo refused >&2; exit 126')
  const end = await dump('true', await withPrograms({ docker: refusing }))
  expect(end).toMatchObject({ exit_code: 126, errors: 'refused\n' })
})

test('a script gets what it restores decompressed', async () => {
  const file = join(folder, 'restored')
  expect(await restore(`cat >${file}`, zstdCompressSync(data))).toMatchObject({ exit_code: 0, errors: '' })
  expect((await readFile(file)).equals(data)).toBe(true)
})

test.each(['true', 'head -c 10 >/dev/null'])('`%s` need not read all that it restores', async (script) => {
  expect(await restore(script, zstdCompressSync(data))).toMatchObject({ exit_code: 0 })
})

test('a restore whose input breaks off fails', async () => {
  const half = zstdCompressSync(data).subarray(0, -20)
  expect(await restore('cat >/dev/null', half)).toMatchObject({ exit_code: 1 })
})

test('a restore whose container cannot run the script fails', async () => {
  const refusing = docker.replace('exec "$@"', 'exit 126')
  const end = restore('true', zstdCompressSync(data), await withPrograms({ docker: refusing }))
  expect(await end).toMatchObject({ exit_code: 126 })
})

test.each(['output', 'input'] as const)('no link in the place of the %s is followed', async (zstd) => {
  const planted = join(folder, `planted-${zstd}`)
  await writeFile(planted, 'of the machine')
  const mark = newId()
  // The container acts after the FIFO is made, and before it is opened.
  const swapping = `#!/bin/sh\nln -sf ${planted} ${fifoOf(mark)}\nPATH=\${PATH#*:} exec dd "$@"\n`
  const ends = docker.replace('exec "$@"', 'sleep 0.2; exit 0')
  const search = await withPrograms({ docker: ends, dd: swapping })
  const { stream, ended } = await scriptsWith(search).open(container, 'true', mark, { zstd })
  stream.on('error', () => {})
  stream.end(zstd === 'input' ? zstdCompressSync(data) : undefined)
  const output = await buffer(stream)
  if (zstd === 'output') expect(zstdDecompressSync(output).length).toBe(0)
  expect((await ended()).exit_code).not.toBe(0)
  expect(await readFile(planted, 'utf8')).toBe('of the machine')
})
