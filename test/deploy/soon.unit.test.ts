import { spawnSync } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { soon } from '../../activities/host/soon.ts'

let folder: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'soon-'))
})
afterAll(() => rm(folder, { recursive: true }))

function run(command: string) {
  const { status, stderr } = spawnSync('sh', ['-c', soon(command)], { cwd: folder, encoding: 'utf8' })
  return { status, stderr }
}

test('a command is tried again until it succeeds', () => {
  expect(run('echo one >>tries; [ $(wc -l <tries) = 3 ]')).toEqual({ status: 0, stderr: '' })
})

test('one that never succeeds ends with its last error', () => {
  const { status, stderr } = run('echo more >>all; wc -l <all; false # a comment')
  expect([status, stderr.trim()]).toEqual([1, '50'])
})
