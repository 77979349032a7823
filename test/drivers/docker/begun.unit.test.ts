import { type ChildProcess, spawn } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { setTimeout as delay } from 'node:timers/promises'
import { afterEach, expect, test } from '@jest/globals'
import { commandBegun } from '../../../drivers/docker/begun.ts'
import { eventually } from '../../support/eventually.ts'

// A shell stands for a container's init: its subshell has the same arguments until it executes the command.

const never = new AbortController().signal
let init: ChildProcess

/** Starts an init whose child executes its command at the next line that init reads. */
async function startInit(): Promise<number> {
  init = spawn('bash', ['-c', 'exec 3<&0; (read -r line <&3; exec sleep 60) & wait'], {
    stdio: ['pipe', 'ignore', 'inherit'],
    detached: true,
  })
  const pid = init.pid ?? 0
  await eventually(async () => (await readFile(`/proc/${pid}/task/${pid}/children`, 'utf8')) !== '')
  return pid
}

afterEach(() => {
  process.kill(-(init.pid ?? 0), 'SIGKILL')
})

/** What has ended so far. */
function watched(work: Promise<unknown>): { isOver: boolean } {
  const seen = { isOver: false }
  void work.then(() => (seen.isOver = true))
  return seen
}

test('a command has begun when the child of init executes it', async () => {
  const begun = commandBegun(await startInit(), never)
  const seen = watched(begun)
  await delay(100) // some twenty looks
  expect(seen.isOver).toBe(false)
  init.stdin?.write('go\n')
  await begun
})

test('the wait for a command ends with its container', async () => {
  const ended = new AbortController()
  const begun = commandBegun(await startInit(), ended.signal)
  ended.abort()
  await begun
})

test('a process that cannot be looked at is not waited for', async () => {
  await startInit()
  await commandBegun(0, never)
})
