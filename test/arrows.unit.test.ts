import { execFile } from 'node:child_process'
import { copyFile, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test } from '@jest/globals'

// Each file has one import. The repository's rules say which imports are forbidden.

const config = resolve('.dependency-cruiser.json')
const program = resolve('node_modules/.bin/depcruise')
const execute = promisify(execFile)

const value = (of: string): string => `import { a } from '${of}'\nexport const b = a\n`
const type = (of: string): string => `import type { A } from '${of}'\nexport type B = A\n`

const tree: Record<string, { text: string; rule: string | null }> = {
  'api/calls-a-driver.ts': { text: value('../drivers/things.ts'), rule: 'types-of-drivers' },
  'api/knows-a-driver.ts': { text: type('../drivers/things.ts'), rule: null },
  'api/runs-an-activity.ts': { text: value('../activities/compute/things.ts'), rule: 'api' },
  'api/server.ts': { text: value('node:http'), rule: null },
  'api/names-no-file.ts': { text: value('../models/nothing.ts'), rule: 'no-missing' },
  'api/uses-a-package.ts': { text: value('undeclared'), rule: 'declared-packages' },
  'api/uses-a-tool.ts': { text: value('jest'), rule: 'no-dev-packages' },
  'gateway/asks-for-containers.ts': { text: value('../models/things.ts'), rule: 'gateway' },
  'gateway/knows-keys.ts': { text: value('../models/compute/hosts.ts'), rule: null },
  'gateway/models/asks-for-hosts.ts': { text: value('../../models/compute/hosts.ts'), rule: 'model-gateway' },
  'models/compute/hosts.ts': { text: 'export const a = 1\nexport type A = 1\n', rule: null },
  'models/starts.ts': { text: value('../workflows/starters.ts'), rule: 'models' },
  'models/is-called.ts': { text: value('../gateway/knows-keys.ts'), rule: 'gateway-is-a-program' },
  'models/shows.ts': { text: value('../api/server.ts'), rule: 'api-is-a-program' },
  'models/reads-settings.ts': { text: value('../config.ts'), rule: 'settings' },
  'models/pretends.ts': { text: value('../test/support/fakes.ts'), rule: 'tests' },
  'config.ts': { text: 'export const a = 1\nexport type A = 1\n', rule: null },
  'models/calls-a-driver.ts': { text: value('../drivers/things.ts'), rule: 'types-of-drivers' },
  'models/things.ts': { text: 'export const a = 1\nexport type A = 1\n', rule: null },
  'workflows/reads-files.ts': { text: value('node:fs'), rule: 'sandbox-has-no-node' },
  'workflows/runs-an-activity.ts': { text: value('../activities/compute/things.ts'), rule: 'sandbox' },
  'workflows/asks-a-model.ts': { text: type('../models/things.ts'), rule: 'workflows' },
  'workflows/starters.ts': { text: value('../models/things.ts'), rule: 'starters' },
  'workflows/tells.ts': { text: 'export const a = 1\nexport type A = 1\n', rule: null },
  'workflows/schedules.ts': { text: value('../lib/ai/schedule.ts'), rule: null },
  'workflows/evaluates.ts': { text: value('../lib/ai/cel.ts'), rule: 'sandbox' },
  'lib/ai/schedule.ts': { text: `${value('./graph.ts')}${type('./cel.ts')}`, rule: null },
  'lib/ai/graph.ts': { text: value('./cel.ts'), rule: 'sandbox-of-ai-workflows' },
  'lib/ai/cel.ts': { text: 'export const a = 1\nexport type A = 1\n', rule: null },
  'workflows/knows-an-activity.ts': { text: type('../activities/compute/things.ts'), rule: null },
  'activities/compute/things.ts': { text: 'export const a = 1\nexport type A = 1\n', rule: null },
  'activities/compute/decides.ts': { text: value('../../workflows/tells.ts'), rule: 'types-of-workflows' },
  'activities/compute/knows-a-story.ts': { text: type('../../workflows/tells.ts'), rule: null },
  'activities/compute/runs-on-a-host.ts': { text: value('../host/boots.ts'), rule: 'activities' },
  'activities/compute/boots.ts': {
    text: value('../../drivers/qemu/engine.ts'),
    rule: 'types-of-host-drivers',
  },
  'activities/compute/knows.ts': { text: type('../../drivers/qemu/engine.ts'), rule: null },
  'activities/host/boots.ts': { text: value('../../drivers/qemu/engine.ts'), rule: null },
  'activities/host/queries.ts': { text: value('../../models/things.ts'), rule: 'host-activities' },
  'activities/host/keeps-roles.ts': {
    text: value('../../worker/runner/door.ts'),
    rule: 'worker-is-a-program',
  },
  'worker/runner.ts': { text: value('../lib/detour.ts'), rule: 'runner-program' },
  'worker/runner/door.ts': { text: value('node:http'), rule: null },
  'activities/runner/queries.ts': { text: value('../../models/things.ts'), rule: 'runner-activities' },
  'worker/host.ts': { text: value('../lib/detour.ts'), rule: 'host-program' },
  'lib/detour.ts': { text: value('../models/things.ts'), rule: 'lib' },
  'drivers/things.ts': { text: 'export const a = 1\nexport type A = 1\n', rule: null },
  'drivers/knows-an-engine.ts': { text: type('./qemu/engine.ts'), rule: 'driver-interfaces' },
  'drivers/qemu/engine.ts': { text: 'export const a = 1\nexport type A = 1\n', rule: null },
  'drivers/qemu/queries.ts': { text: value('../../models/things.ts'), rule: 'drivers' },
  'drivers/qemu/pulls.ts': { text: value('../docker/images.ts'), rule: 'driver-qemu' },
  'drivers/qemu/images.ts': {
    text: `${value('../docker/images.ts')}export type { A } from '../haproxy/boots.ts'\n`,
    rule: 'driver-qemu-images',
  },
  'drivers/qemu/serves.ts': { text: value('express'), rule: 'drivers-know-engines' },
  'drivers/qemu/pulls-images.ts': { text: value('./images.ts'), rule: null },
  'drivers/swarm/images.ts': { text: value('../docker/images.ts'), rule: null },
  'drivers/swarm/boots.ts': { text: value('../qemu/engine.ts'), rule: 'driver-swarm' },
  'drivers/docker/images.ts': { text: value('../system/programs.ts'), rule: null },
  'drivers/docker/boots.ts': { text: type('../qemu/engine.ts'), rule: 'driver-rooms' },
  'drivers/haproxy/boots.ts': { text: value('../qemu/engine.ts'), rule: 'driver-rooms' },
  'drivers/linux/attaches.ts': { text: value('../qemu/engine.ts'), rule: 'driver-linux' },
  'drivers/system/programs.ts': { text: 'export const a = 1\n', rule: null },
  'drivers/system/groups.ts': { text: value('../linux/attaches.ts'), rule: 'driver-system' },
  'lib/outbound.ts': { text: value('node:https'), rule: null },
  'lib/asks.ts': { text: value('node:https'), rule: 'outbound' },
  'models/asks.ts': { text: value('node:http'), rule: 'outbound' },
  'models/knows-requests.ts': { text: type('node:http'), rule: null },
  'images/rag/store.ts': { text: 'export const a = 1\nexport type A = 1\n', rule: null },
  'images/rag/server.ts': { text: `${value('./store.ts')}${type('node:https')}`, rule: null },
  'images/rag/shares.ts': { text: value('../../lib/detour.ts'), rule: 'rag-store' },
  'images/rag/parses.ts': { text: type('zod'), rule: 'rag-store' },
  'images/rag/asks.ts': { text: value('pg'), rule: 'rag-store' },
  'images/rag/pgvector/sessions.ts': { text: value('../store.ts'), rule: null },
  'images/rag/pgvector/parses.ts': { text: type('zod'), rule: 'rag-store-pgvector' },
  'images/rag/loads.ts': { text: value('./pgvector/sessions.ts'), rule: 'rag-store-loads-one-engine' },
  'images/rag/client.ts': { text: type('./store.ts'), rule: null },
  'models/answers.ts': { text: type('../images/rag/store.ts'), rule: null },
  'models/searches.ts': { text: value('../images/rag/store.ts'), rule: 'rag-store-is-a-program' },
  'models/retrieval/store-door.ts': { text: value('../../images/rag/client.ts'), rule: null },
  'models/retrieval/store-rules.ts': { text: value('../../images/rag/server.ts'), rule: 'rag-store-door' },
  'test/support/fakes.ts': { text: value('./stubs.ts'), rule: 'no-cycles-in-tests' },
  'test/support/stubs.ts': { text: value('./fakes.ts'), rule: null },
  'test/support/shapes.ts': { text: type('./forms.ts'), rule: null },
  'test/support/forms.ts': {
    text: "import type { B } from './shapes.ts'\nexport type A = B\n",
    rule: null,
  },
  'lib/one.ts': { text: type('./other.ts'), rule: 'no-cycles' },
  'lib/other.ts': { text: "import type { B } from './one.ts'\nexport type A = B\n", rule: null },
}

/** Packages that files of the tree import, and how package.json names them. */
const packages = { express: 'dependencies', jest: 'devDependencies', undeclared: null }

const named = (how: string) =>
  Object.fromEntries(Object.entries(packages).flatMap(([name, as]) => (as === how ? [[name, '1']] : [])))

let folder: string
let broken: Map<string, string[]>

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'keelson-arrows-'))
  for (const [path, { text }] of Object.entries(tree)) {
    await mkdir(dirname(join(folder, path)), { recursive: true })
    await writeFile(join(folder, path), text)
  }
  await writeFile(
    join(folder, 'package.json'),
    JSON.stringify({
      type: 'module',
      dependencies: named('dependencies'),
      devDependencies: named('devDependencies'),
    }),
  )
  for (const name of Object.keys(packages)) {
    const place = join(folder, 'node_modules', name)
    await mkdir(place, { recursive: true })
    await writeFile(join(place, 'package.json'), JSON.stringify({ name, version: '1.0.0', main: 'main.js' }))
    await writeFile(join(place, 'main.js'), 'exports.a = 1\n')
  }
  const folders = [...new Set(Object.keys(tree).map((path) => path.split('/')[0] ?? ''))]
  const args = [program, '--config', config, '--output-type', 'json', ...folders]
  const { stdout } = await execute(process.execPath, args, { cwd: folder })
  const { summary } = JSON.parse(stdout) as {
    summary: { violations: { from: string; rule: { name: string } }[] }
  }
  broken = new Map()
  for (const { from, rule } of summary.violations) broken.set(from, [...(broken.get(from) ?? []), rule.name])
})

afterAll(() => rm(folder, { recursive: true }))

test('lint refuses the global fetch in each folder where a tenant’s URL may arrive', async () => {
  const text = "export const b = await fetch('https://example.com')\n"
  const paths = ['api', 'gateway', 'models', 'activities', 'lib', 'worker', 'drivers'].map(
    (room) => `${room}/fetches.ts`,
  )
  for (const path of paths) await writeFile(join(folder, path), text)
  await copyFile(resolve('.oxlintrc.json'), join(folder, '.oxlintrc.json'))
  const args = [resolve('node_modules/.bin/oxlint'), '--format', 'unix', ...paths]
  const { stdout } = await execute(process.execPath, args, { cwd: folder }).catch(
    (error: { stdout: string }) => error,
  )
  const refused = stdout.split('\n').filter((line) => line.includes('lib/outbound.ts'))
  expect(refused.map((line) => line.replace(/^.*?(\w+\/fetches\.ts).*$/, '$1'))).toEqual(
    expect.arrayContaining(paths.slice(0, -1)),
  )
  expect(refused).toHaveLength(paths.length - 1)
})

test('each rule has a file that breaks it', async () => {
  const { forbidden } = JSON.parse(await readFile(config, 'utf8')) as { forbidden: { name: string }[] }
  const tried = new Set(Object.values(tree).map(({ rule }) => rule))
  expect(forbidden.flatMap(({ name }) => (tried.has(name) ? [] : name))).toEqual([])
})

const cases = Object.entries(tree).map(([path, { rule }]) => ({ path, rule }))

test.each(cases.filter(({ rule }) => rule !== null))('the rule $rule forbids $path', ({ path, rule }) => {
  expect(broken.get(path)).toContain(rule)
})

test.each(cases.filter(({ rule }) => rule === null))('no rule forbids $path', ({ path }) => {
  expect(broken.get(path)).toBeUndefined()
})
