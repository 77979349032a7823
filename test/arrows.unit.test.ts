import { execFile } from 'node:child_process'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
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
  'models/calls-a-driver.ts': { text: value('../drivers/things.ts'), rule: 'types-of-drivers' },
  'models/things.ts': { text: 'export const a = 1\nexport type A = 1\n', rule: null },
  'workflows/reads-files.ts': { text: value('node:fs'), rule: 'sandbox-has-no-node' },
  'workflows/runs-an-activity.ts': { text: value('../activities/compute/things.ts'), rule: 'sandbox' },
  'workflows/schedules.ts': { text: value('../lib/ai/schedule.ts'), rule: null },
  'workflows/evaluates.ts': { text: value('../lib/ai/cel.ts'), rule: 'sandbox' },
  'lib/ai/schedule.ts': { text: `${value('./graph.ts')}${type('./cel.ts')}`, rule: null },
  'lib/ai/graph.ts': { text: value('./cel.ts'), rule: 'sandbox-of-ai-workflows' },
  'lib/ai/cel.ts': { text: 'export const a = 1\nexport type A = 1\n', rule: null },
  'workflows/knows-an-activity.ts': { text: type('../activities/compute/things.ts'), rule: null },
  'activities/compute/things.ts': { text: 'export const a = 1\nexport type A = 1\n', rule: null },
  'activities/compute/boots.ts': {
    text: value('../../drivers/qemu/engine.ts'),
    rule: 'types-of-host-drivers',
  },
  'activities/compute/knows.ts': { text: type('../../drivers/qemu/engine.ts'), rule: null },
  'activities/host/boots.ts': { text: value('../../drivers/qemu/engine.ts'), rule: null },
  'activities/host/queries.ts': { text: value('../../models/things.ts'), rule: 'host-activities' },
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
  'drivers/qemu/images.ts': { text: value('../docker/images.ts'), rule: null },
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
  'lib/one.ts': { text: type('./other.ts'), rule: 'no-cycles' },
  'lib/other.ts': { text: "import type { B } from './one.ts'\nexport type A = B\n", rule: null },
}

let folder: string
let broken: Map<string, string[]>

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'keelson-arrows-'))
  for (const [path, { text }] of Object.entries(tree)) {
    await mkdir(dirname(join(folder, path)), { recursive: true })
    await writeFile(join(folder, path), text)
  }
  await writeFile(join(folder, 'package.json'), '{"type": "module"}')
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

const cases = Object.entries(tree).map(([path, { rule }]) => ({ path, rule }))

test.each(cases.filter(({ rule }) => rule !== null))('the rule $rule forbids $path', ({ path, rule }) => {
  expect(broken.get(path)).toContain(rule)
})

test.each(cases.filter(({ rule }) => rule === null))('no rule forbids $path', ({ path }) => {
  expect(broken.get(path)).toBeUndefined()
})
