import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeAll, expect, test } from '@jest/globals'
import type { ContainerBody } from '../support/client.ts'
import { facts } from '../support/stack.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'
import { Tmux } from '../support/tmux.ts'

// The terminal client of docs/console.md, run in a real terminal, as a person sees it.

const page = readFileSync(join(import.meta.dirname, '../../docs/console.md'), 'utf8')
const client = /--input-type=module -e '\n([\s\S]*?)'\n/.exec(page)?.[1] ?? ''

const hasTmux = spawnSync('tmux', ['-V']).status === 0
if (!hasTmux) console.warn('The tests of the terminal client are skipped: there is no tmux.')
const inTmux = hasTmux ? test : test.skip

let tenant: TestTenant
let container: ContainerBody
let terminal: Tmux | undefined
beforeAll(async () => {
  tenant = await makeTenant()
  container = await tenant.containers.make({ cpu_cores: 1, memory_mib: 64 })
})
afterEach(() => terminal?.close())

const open = (cols: number, rows: number): Promise<Tmux> =>
  Tmux.open([process.execPath, '--input-type=module', '-e', client], {
    cols,
    rows,
    env: { TOKEN: tenant.owner.token, CONTAINER: container.id, API: facts().api_url, LC_ALL: 'C.UTF-8' },
  })

const has = (text: string) => (lines: string[]) => lines.some((line) => line.includes(text))

inTmux('vi fills the screen, also after a resize, and its file is written', async () => {
  terminal = await open(80, 24)
  await terminal.shows(has('#'))
  await terminal.type('vi /tmp/poem')
  await terminal.press('Enter')
  await terminal.shows(
    (lines) => lines.length === 24 && lines[22] === '~' && has('/tmp/poem')(lines.slice(23)),
  )
  await terminal.type('iroses are red')
  await terminal.press('Enter')
  await terminal.type('violets — blüh’n')
  await terminal.press('Escape')
  await terminal.shows(has('- /tmp/poem')) // the insert mode has ended
  await terminal.resize(60, 15)
  const lines = await terminal.shows(
    (all) => all.length === 15 && all[13] === '~' && has('/tmp/poem')(all.slice(14)),
  )
  expect(lines.slice(0, 3)).toEqual(['roses are red', 'violets — blüh’n', '~'])
  await terminal.type(':wq')
  await terminal.press('Enter')
  await terminal.type('clear; cat /tmp/poem; stty size')
  await terminal.press('Enter')
  await terminal.shows(has('15 60'))
  expect((await terminal.screen()).slice(0, 3)).toEqual(['roses are red', 'violets — blüh’n', '15 60'])
})

inTmux(
  'ctrl-C ends the running command but not the shell; the end of the shell ends the client',
  async () => {
    terminal = await open(80, 24)
    await terminal.shows(has('#'))
    await terminal.type('sleep 1000 || echo ended with $?')
    await terminal.press('Enter')
    await terminal.press('C-c')
    await terminal.shows((lines) => lines.filter((line) => line.startsWith('/ #')).length >= 2)
    await terminal.type('echo still $((40 + 2)); exit 3')
    await terminal.press('Enter')
    await terminal.shows(has('1000 exit code 3'))
    expect(await terminal.screen()).toContain('still 42')
  },
)
