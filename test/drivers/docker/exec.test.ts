import { createHash } from 'node:crypto'
import { finished } from 'node:stream/promises'
import { afterAll, expect, test } from '@jest/globals'
import type { Terminal } from '../../../drivers/containers.ts'
import { newId } from '../../../lib/ids.ts'
import { containerSpec, docker, engine, removeTestContainers } from '../../support/containers.ts'
import { eventually } from '../../support/eventually.ts'

afterAll(removeTestContainers)

const size = { cols: 80, rows: 24 }

async function container(): Promise<{ id: string; engineId: string }> {
  const { id, engine_id } = await engine.run(containerSpec(), {}, newId())
  return { id, engineId: engine_id }
}

/** The commands that run in it, according to the engine. */
async function processes(engineId: string): Promise<string[]> {
  const { Processes } = (await docker.getContainer(engineId).top({ ps_args: '-eo pid,args' })) as {
    Processes: string[][]
  }
  return Processes.map(([, args = '']) => args)
}

/** Collects the output; returns what has arrived so far. */
function reading({ stream }: Terminal): () => string {
  const parts: Buffer[] = []
  stream.on('data', (part: Buffer) => parts.push(part))
  return () => Buffer.concat(parts).toString()
}

/** Resolves when the stream has ended, also if it ended before this call. */
const ended = ({ stream }: Terminal): Promise<void> => finished(stream, { writable: false })

test('a command has a terminal of the requested size, and of each new size', async () => {
  const { id } = await container()
  const terminal = await engine.exec(id, ['/bin/sh'], { cols: 100, rows: 40 })
  const output = reading(terminal)
  terminal.stream.write('stty size\n')
  await eventually(() => output().includes('40 100'))
  await terminal.resize({ cols: 133, rows: 50 })
  terminal.stream.write('stty size\n')
  await eventually(() => output().includes('50 133'))
  await terminal.close()
})

test.each([
  ['of its own', ['sh', '-c', 'exit 3'], 3],
  ['126 or 127 where it could not be started', ['/no/such'], expect.any(Number)],
])('the exit code is %s', async (_, command, code) => {
  const { id } = await container()
  const terminal = await engine.exec(id, command, size)
  reading(terminal)
  await ended(terminal)
  expect(await terminal.exitCode()).toEqual(code)
})

test('the exit code of a command that ended with its container is 137, as after a kill', async () => {
  const { id } = await container()
  const terminal = await engine.exec(id, ['sleep', '600'], size)
  reading(terminal)
  await Promise.all([ended(terminal), engine.stop(id, 0)])
  expect(await terminal.exitCode()).toBe(137)
})

test('closing a terminal ends all its processes and no others', async () => {
  const { id, engineId } = await container()
  const before = await processes(engineId)
  const [one, other] = [await engine.exec(id, ['/bin/sh'], size), await engine.exec(id, ['/bin/sh'], size)]
  const output = reading(one)
  reading(other)
  other.stream.write('sleep 222\n')
  one.stream.write("(trap '' HUP; sleep 111 & sleep 112); echo ne''ver\n")
  await eventually(
    async () => (await processes(engineId)).filter((args) => /sleep [12]{3}/.test(args)).length === 3,
  )
  await one.close()
  const left = await processes(engineId)
  expect(left.filter((args) => /sleep 11/.test(args))).toEqual([])
  expect(left.filter((args) => /sleep 222/.test(args))).toHaveLength(1)
  expect(output()).not.toContain('never')
  await other.close()
  expect(await processes(engineId)).toEqual(before)
  await other.close()
})

test('closing a terminal at once leaves no process either', async () => {
  const { id, engineId } = await container()
  const before = await processes(engineId)
  for (let i = 0; i < 5; i++) await (await engine.exec(id, ['/bin/sh'], size)).close()
  expect(await processes(engineId)).toEqual(before)
})

test('a reader that pauses gets 10 MB completely, and they are not buffered ahead of it', async () => {
  const { id } = await container()
  const script = 'stty -opost; i=0; while [ $i -lt 160 ]; do cat /tmp/block; i=$((i+1)); done'
  const make = 'seq 1 20000 | head -c 65536 >/tmp/block'
  const terminal = await engine.exec(id, ['sh', '-c', `${make}; ${script}`], size)
  const hash = createHash('sha256')
  let bytes = 0
  for await (const part of terminal.stream) {
    bytes += (part as Buffer).length
    hash.update(part as Buffer)
    if (bytes % 7 === 0) await new Promise((resolve) => setTimeout(resolve, 20))
    expect(terminal.stream.readableLength).toBeLessThan(1024 * 1024)
  }
  const block = Buffer.from(Array.from({ length: 20_000 }, (_, i) => `${i + 1}\n`).join('')).subarray(
    0,
    65_536,
  )
  const whole = createHash('sha256')
  for (let i = 0; i < 160; i++) whole.update(block)
  expect([bytes, hash.digest('hex')]).toEqual([160 * 65_536, whole.digest('hex')])
})

test('a missing or stopped container runs no command', async () => {
  await expect(engine.exec(newId(), ['/bin/sh'], size)).rejects.toMatchObject({ code: 'instance_not_found' })
  const { id } = await container()
  await engine.stop(id, 0)
  await expect(engine.exec(id, ['/bin/sh'], size)).rejects.toMatchObject({ code: 'instance_not_running' })
})
