import { randomInt } from 'node:crypto'
import { mkdirSync, readdirSync, readFileSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from '@jest/globals'
import { livingPid } from '../../script/lib/processes.ts'
import { Role } from '../../script/lib/role.ts'
import { run } from '../../drivers/system/programs.ts'
import { asRoot } from '../support/as-root.ts'
import { eventually } from '../support/eventually.ts'

let folder: string
let role: Role | undefined
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'role-'))
})
afterEach(async () => {
  await role?.stop()
  await run('umount', [join(folder, 'run')])
  await rm(folder, { recursive: true })
})

/** The processes with this text in their command line. */
const runningWith = (program: string): string[] =>
  readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .filter((pid) => {
      try {
        return readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(program)
      } catch {
        return false // it has ended
      }
    })

asRoot('with the pids on a full disk', () => {
  test('a role leaves no process that is not recorded, and runs once there is room', async () => {
    const place = join(folder, 'run')
    mkdirSync(place)
    await run('mount', ['-t', 'tmpfs', '-o', 'size=64k', 'tmpfs', place])
    mkdirSync(join(place, 'pids'))
    await expect(writeFile(join(place, 'filler'), Buffer.alloc(65_536 + 1))).rejects.toThrow('ENOSPC')

    // The seconds tell it from others. A shell's own child would have the shell's command line until it runs its program.
    const program = `86400.${randomInt(1e9)}`
    const notes: string[] = []
    const spec = {
      name: 'role',
      command: 'sleep',
      args: [program],
      env: { PATH: process.env['PATH'] ?? '' },
      ready: () => Promise.resolve(),
      graceMs: 1_000,
    }
    const kept = (role = new Role(spec, { run: place, cwd: folder, log: folder }))
    kept.on('note', (_, words) => notes.push(words))
    void kept.start().catch(() => {}) // it gives up after some crashes, and the restarts continue
    await eventually(() => notes.filter((words) => words.includes('ended by itself')).length >= 2)
    expect(runningWith(program).length).toBeLessThanOrEqual(1) // that has just started, and ends

    await rm(join(place, 'filler'))
    await eventually(() => kept.status.state === 'running')
    expect(runningWith(program)).toEqual([String(livingPid(place, 'role'))])
  })
})
