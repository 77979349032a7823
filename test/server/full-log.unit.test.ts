import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { openSync, readFileSync } from 'node:fs'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { afterEach, beforeEach, expect, test } from '@jest/globals'
import { run } from '../../drivers/system/programs.ts'
import { asRoot } from '../support/as-root.ts'
import { eventually } from '../support/eventually.ts'

let folder: string
let disk: string
let child: ChildProcess | undefined
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'full-log-'))
  disk = join(folder, 'disk')
  await mkdir(disk)
  await run('mount', ['-t', 'tmpfs', '-o', 'size=64k', 'tmpfs', disk])
})
afterEach(async () => {
  child?.kill('SIGKILL')
  if (child && child.exitCode === null && child.signalCode === null) await once(child, 'exit')
  await run('umount', ['--lazy', disk])
  await rm(folder, { recursive: true })
})

const program = `
const { makeLogger } = await import(${JSON.stringify(resolve(import.meta.dirname, '../../lib/log.ts'))})
const log = makeLogger('api', 'info')
process.on('message', (words) => {
  log.info(words)
  process.send('done')
})
process.send('started')
`

asRoot('with its log on a full disk', () => {
  test('a role goes on, and writes its lines when there is room', async () => {
    const file = join(disk, 'api.log')
    const filler = join(disk, 'filler')
    const output = openSync(file, 'a')
    await expect(writeFile(filler, Buffer.alloc(65_536 + 1))).rejects.toThrow('ENOSPC')
    const started = spawn(process.execPath, ['--input-type=module', '-e', program], {
      stdio: ['ignore', output, 'inherit', 'ipc'],
    })
    child = started
    await once(started, 'message')
    for (const words of ['one', 'two']) {
      started.send(words)
      await once(started, 'message')
    }
    expect([readFileSync(file, 'utf8'), started.exitCode]).toEqual(['', null])

    await rm(filler)
    await eventually(() => readFileSync(file, 'utf8').split('\n').length === 3)
    const lines = readFileSync(file, 'utf8').trimEnd().split('\n')
    expect(lines.map((line) => (JSON.parse(line) as { msg: string }).msg)).toEqual(['one', 'two'])
  })
})
