import { execFile } from 'node:child_process'
import { cp, mkdir, mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { docker } from '../support/containers.ts'
import { programOf } from '../support/programs.ts'
import { facts, layout } from '../support/stack.ts'

// How script/bootstrap comes by Temporal: from an image of the engine, from another clone, or by a build.

const run = promisify(execFile)
const image = `keelson-test/temporal:${newId().slice(-12)}`
const nowhere = '127.0.0.1:1/temporal:1'
const program = await programOf('temporal')
let folder: string

/** The image has this machine's program, where the public one has its own. */
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'temporal-'))
  const root = join(folder, 'root')
  await mkdir(root)
  await cp(program, join(root, 'temporal'), { dereference: true })
  await run('tar', ['-C', root, '-cf', join(folder, 'root.tar'), '.'])
  const entry = ['--change', 'ENTRYPOINT ["/temporal"]']
  await run('docker', ['import', ...entry, join(folder, 'root.tar'), image], { env: engine() })
})
afterAll(async () => {
  await docker.getImage(image).remove()
  await rm(folder, { recursive: true })
})

const engine = () => ({ PATH: process.env['PATH'] ?? '', DOCKER_HOST: facts().docker_host, HOME: folder })

/** Runs `use_temporal` of bootstrap with its own folder of tools, and prints what it did. */
async function useTemporal(tools: string, settings: Record<string, string>): Promise<string> {
  await mkdir(tools, { recursive: true })
  const script = `set -euo pipefail
tools=${tools}
. script/lib/tools.sh
. script/lib/temporal.sh
docker_answers() { docker info >/dev/null 2>&1; }
have() { [[ $1 != temporal ]] && command -v "$1" >/dev/null; }
build_temporal() { mkdir -p "$tools/.new-temporal/bin"; cp ${program} "$tools/.new-temporal/bin/"; keep "$tools/.new-temporal" temporal "$temporal_version"; }
find_go() { go=go; }
exec 7<. 8<.
begin_temporal
end_jobs`
  return (await run('bash', ['-c', script], { env: { ...engine(), ...settings }, cwd: layout.repository }))
    .stdout
}
const pinned = (tools: string): Promise<string> => readFile(join(tools, 'temporal/.pinned'), 'utf8')

test('an image gives Temporal, and the next clone takes it from the first one', async () => {
  const XDG_CACHE_HOME = join(folder, 'cache')
  const [first, second] = [join(folder, 'first'), join(folder, 'second')]
  const said = await useTemporal(first, { XDG_CACHE_HOME, KEELSON_TEMPORAL_IMAGE: image })
  expect(said).toContain(`Temporal from its image ${image}`)
  expect(await useTemporal(first, { XDG_CACHE_HOME, KEELSON_TEMPORAL_IMAGE: image })).toBe('')
  expect(await useTemporal(second, { XDG_CACHE_HOME, KEELSON_TEMPORAL_IMAGE: nowhere })).toMatch(
    /^Temporal [\d.]+, as another clone has kept it\n$/,
  )
  const { stdout } = await run(join(second, 'temporal/bin/temporal'), ['--version'], { env: {} })
  expect(stdout).toMatch(/^temporal version/)
  expect(await pinned(second)).toBe(await pinned(first))
})

test('without an image that a registry or the engine has, it is built, and kept as well', async () => {
  const settings = { XDG_CACHE_HOME: join(folder, 'other-cache'), KEELSON_TEMPORAL_IMAGE: nowhere }
  expect(await useTemporal(join(folder, 'built'), settings)).toMatch(/^Temporal [\d.]+, built with Go/)
  expect(await useTemporal(join(folder, 'next'), settings)).toMatch(/as another clone has kept it/)
})

test('a setting stands above all', async () => {
  const tools = join(folder, 'none')
  expect(await useTemporal(tools, { KEELSON_TEMPORAL_ADDRESS: 'temporal.example:7233' })).toBe('')
  await expect(pinned(tools)).rejects.toThrow('ENOENT')
})
