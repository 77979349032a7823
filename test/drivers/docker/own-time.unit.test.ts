import { type ChildProcess, spawn } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { setTimeout as delay } from 'node:timers/promises'
import { afterEach, expect, test } from '@jest/globals'
import { ownTime } from '../../../drivers/docker/own-time.ts'
import { eventually } from '../../support/eventually.ts'

// A shell stands for a container's init.

const started: ChildProcess[] = []

function start(program: string, ...args: string[]): number {
  const child = spawn(program, args, { stdio: 'ignore', detached: true })
  started.push(child)
  return child.pid ?? 0
}

const bash = (script: string): number => start('bash', '-c', script)

afterEach(() => {
  for (const { pid = 0 } of started.splice(0)) process.kill(-pid, 'SIGKILL')
})

const childOf = (pid: number): Promise<number> =>
  eventually(async () => Number.parseInt(await readFile(`/proc/${pid}/task/${pid}/children`, 'utf8')) || null)

const hasState = (pid: number, state: string): Promise<unknown> =>
  eventually(async () => (await readFile(`/proc/${pid}/stat`, 'utf8')).includes(`) ${state} `))

const busy = 'while :; do :; done'

test('all the time of a command that sleeps is its own', async () => {
  const init = bash('sleep 60 & wait')
  await hasState(await childOf(init), 'S')
  await hasState(init, 'S')
  const own = ownTime(init)
  const begun = performance.now()
  await delay(100)
  const least = performance.now() - begun
  expect(own()).toBeGreaterThanOrEqual(least)
})

test('what a command waits for a processor is not its own time', async () => {
  // One session, since the scheduler shares processors out by session first. The idle command has some thousandths of one.
  const idle = `chrt --idle 0 bash -c '(${busy}) & wait'`
  const init = await childOf(start('taskset', '-c', '0', 'bash', '-c', `${idle} & ${busy}`))
  await childOf(init)
  const own = ownTime(init)
  const begun = performance.now()
  let ms = 0
  for (let looks = 0; looks < 30; looks++) {
    await delay(10)
    ms = own()
  }
  expect(ms).toBeLessThan((performance.now() - begun) / 2)
})

test('what a command computes is its own time', async () => {
  const own = ownTime(bash(`(${busy}) & wait`))
  await eventually(() => Promise.resolve(own() > 50))
})

test('all time counts where the processes cannot be seen', async () => {
  const own = ownTime(0)
  await delay(20)
  expect(own()).toBeGreaterThan(10)
})
