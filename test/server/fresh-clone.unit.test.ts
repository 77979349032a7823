import { execFile } from 'node:child_process'
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { afterEach, beforeEach, expect, test } from '@jest/globals'
import { readLayout } from '../../script/lib/settings.ts'

// script/server in a clone where nothing is installed. Its bootstrap only leaves a mark: this machine has no time for more.

const script = resolve(import.meta.dirname, '../../script')
let clone: string
beforeEach(() => {
  clone = mkdtempSync(join(tmpdir(), 'keelson-clone-'))
  mkdirSync(join(clone, 'script/lib'), { recursive: true })
  for (const name of ['server', 'lib/server-usage.txt', 'lib/folders.sh'])
    cpSync(join(script, name), join(clone, 'script', name))
  writeFileSync(join(clone, 'script/bootstrap'), '#!/bin/sh\ntouch "$(dirname "$0")/bootstrapped"\n', {
    mode: 0o755,
  })
})
afterEach(() => rmSync(clone, { recursive: true }))

function server(args: string[], env: Record<string, string> = {}) {
  const { PATH = '' } = process.env
  return new Promise<{ code: number; out: string; error: string }>((done) => {
    const running = execFile(join(clone, 'script/server'), args, { env: { PATH, ...env } }, (_, out, error) =>
      done({ code: running.exitCode ?? -1, out, error }),
    )
  })
}
const isBootstrapped = () => existsSync(join(clone, 'script/bootstrapped'))

test('--help says what there is, and installs nothing', async () => {
  const { code, out } = await server(['--detach', '--help'])
  expect([code, out]).toEqual([0, readFileSync(join(script, 'lib/server-usage.txt'), 'utf8')])
  expect(isBootstrapped()).toBe(false)
})

test.each([
  [['--detatch'], 'unknown flag: --detatch'],
  [['--state', '/nowhere', '--port=1'], 'unknown flag: --port=1'],
  [['--hosts'], '--hosts needs a value'],
  [['--workers', '2', 'strat', 'api'], 'unknown command: strat'],
])('%j is refused before anything is installed', async (args, why) => {
  const { code, error } = await server(args)
  expect([code, error.split('\n')[0]]).toEqual([2, `script/server: ${why}`])
  expect(error).toContain('script/server destroy --yes')
  expect(isBootstrapped()).toBe(false)
})

test('each flag of the help is known', async () => {
  const flags = new Set(readFileSync(join(script, 'lib/server-usage.txt'), 'utf8').match(/--[a-z-]+/g))
  expect(flags.size).toBe(9)
  flags.delete('--help')
  const withValue = ['--state', '--port-base', '--workers', '--apis', '--hosts']
  const args = [...flags].flatMap((flag) => (withValue.includes(flag) ? [flag, '1'] : [flag]))
  expect((await server(args)).error).toMatch(/^script\/server: nothing is installed/)
  expect(isBootstrapped()).toBe(true)
})

test('the folder of tools is remembered in the state folder', async () => {
  const state = join(clone, 'state')
  const tools = join(clone, 'my tools')
  const env = { PATH: process.env['PATH'] ?? '', KEELSON_STATE: state, KEELSON_TOOLS: tools, root: clone }
  const remember = `set -eu; . '${join(script, 'lib/folders.sh')}'; remember_tools`
  await promisify(execFile)('bash', ['-c', remember], { env })
  expect((await server(['--state', state, 'status'])).error).toContain(`nothing is installed in ${tools}:`)
  expect((await server([`--state=${state}`, 'status'], { KEELSON_TOOLS: '/others' })).error).toContain(
    'nothing is installed in /others:',
  )
  const { KEELSON_TOOLS: _, ...others } = process.env
  const before = process.env
  process.env = others
  try {
    expect(readLayout({ state }).tools).toBe(tools)
  } finally {
    process.env = before
  }
})
