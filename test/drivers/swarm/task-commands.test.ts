import { createConnection } from 'node:net'
import { afterAll, beforeEach, expect, test } from '@jest/globals'
import { serviceLabel } from '../../../drivers/swarm/services.ts'
import { makeTaskCommands } from '../../../drivers/swarm/task-commands.ts'
import type { DialMachine } from '../../../drivers/swarms.ts'
import { newId } from '../../../lib/ids.ts'
import { docker, dockerHost, removeTestContainers, testTenant } from '../../support/containers.ts'
import { eventually } from '../../support/eventually.ts'

// Commands in a container that stands for the task of a service.

const { protocol, pathname, hostname, port } = new URL(dockerHost)
/** This machine's engine in the place of a machine's. */
const dial: DialMachine = async () =>
  protocol === 'unix:' ? createConnection(pathname) : createConnection(Number(port), hostname)

let service: string
let container: Awaited<ReturnType<typeof docker.createContainer>>
const commands = makeTaskCommands(dial)
const run = (command: string, mark: string, timeoutSec: number) =>
  commands.run('one', service, { command, mark, timeoutSec })

beforeEach(async () => {
  service = newId()
  container = await docker.createContainer({
    Image: 'busybox:latest',
    Cmd: ['sleep', '600'],
    Labels: { 'keelson.tenant': testTenant, [serviceLabel]: service },
  })
  await container.start()
})
afterAll(() => removeTestContainers())

/** The sleeps that run in the container, by their seconds. */
async function sleeps(): Promise<string[]> {
  const { Processes } = (await container.top({ ps_args: '-eo pid,args' })) as { Processes: string[][] }
  return Processes.flatMap(([, args = '']) => /^sleep (\d+)/.exec(args)?.[1] ?? []).toSorted()
}

test('a command that is late ends with what has left its session, and nothing else ends', async () => {
  const other = newId()
  await run('sleep 444 >/dev/null 2>&1 &', other, 60)
  const late = await run('setsid sleep 111 & setsid sh -c "sleep 112 & sleep 113" & sleep 114', newId(), 2)
  expect(late).toMatchObject({ timed_out: true })
  expect(await sleeps()).toEqual(['444', '600'])
  await commands.end('one', service, other)
  expect(await sleeps()).toEqual(['600'])
})

test('what a command leaves runs on when it ends by itself, and can be ended', async () => {
  const mark = newId()
  const { exit_code } = await run('setsid sleep 111 >/dev/null 2>&1 & sleep 112 >/dev/null 2>&1 &', mark, 60)
  expect(exit_code).toBe(0)
  expect(await sleeps()).toEqual(['111', '112', '600'])
  await commands.end('one', service, mark)
  expect(await sleeps()).toEqual(['600'])
})

test('what is in the session of a late command is ended without its environment too', async () => {
  const { timed_out } = await run('env -i sleep 111 & env -i sh -c "trap : HUP; sleep 112"; true', newId(), 2)
  expect(timed_out).toBe(true)
  expect(await sleeps()).toEqual(['600'])
})

test('a command that is called off before it starts does not start', async () => {
  const reason = new Error('called off')
  const of = { command: 'sleep 111', mark: newId(), timeoutSec: 600 }
  await expect(commands.run('one', service, of, AbortSignal.abort(reason))).rejects.toBe(reason)
  expect(await sleeps()).toEqual(['600'])
})

test('a command that is called off while it starts is ended', async () => {
  const calledOff = new AbortController()
  const reason = new Error('called off')
  let dials = 0
  // Its second connection is the command's own.
  const aborting: DialMachine = async (machine) => {
    if (++dials === 2) calledOff.abort(reason)
    return dial(machine)
  }
  const of = { command: 'sleep 111', mark: newId(), timeoutSec: 600 }
  const work = makeTaskCommands(aborting).run('one', service, of, calledOff.signal)
  await expect(work).rejects.toBe(reason)
  await eventually(async () => (await sleeps()).length === 1)
})
