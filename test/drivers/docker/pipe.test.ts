import { randomBytes } from 'node:crypto'
import { finished } from 'node:stream/promises'
import { afterAll, expect, test } from '@jest/globals'
import { newId } from '../../../lib/ids.ts'
import { containerSpec, docker, engine, removeTestContainers } from '../../support/containers.ts'
import { eventually } from '../../support/eventually.ts'

afterAll(removeTestContainers)

const container = async (): Promise<{ id: string; engineId: string }> => {
  const { id, engine_id } = await engine.run(containerSpec({ memory_mib: 64 }), {}, newId())
  return { id, engineId: engine_id }
}

test('a pipe carries bytes both ways unchanged, and ends with its command', async () => {
  const { id } = await container()
  const pipe = await engine.pipe(id, ['cat'])
  const sent = randomBytes(3_000_000)
  const parts: Buffer[] = []
  pipe.on('data', (part: Buffer) => parts.push(part))
  pipe.end(sent)
  await finished(pipe)
  expect(Buffer.concat(parts).equals(sent)).toBe(true)
})

test('a pipe fails with what its command says on stderr', async () => {
  const { id } = await container()
  const pipe = await engine.pipe(id, ['sh', '-c', 'echo no such socket >&2; exit 1'])
  pipe.resume()
  await expect(finished(pipe)).rejects.toMatchObject({
    code: 'engine_unavailable',
    cause: { message: 'no such socket' },
  })
})

test('a pipe that is destroyed ends the input of its command, and no error is left unheard', async () => {
  const { id, engineId } = await container()
  const pipe = await engine.pipe(id, ['cat'])
  pipe.destroy()
  await eventually(async () => {
    const { Processes } = (await docker.getContainer(engineId).top()) as { Processes: string[][] }
    return Processes.every((process) => process.at(-1) !== 'cat')
  })
})

test('a pipe into a container that does not run is refused', async () => {
  const { id } = await container()
  await engine.stop(id, 0)
  await expect(engine.pipe(id, ['cat'])).rejects.toMatchObject({ code: 'instance_not_running' })
  await expect(engine.pipe(newId(), ['cat'])).rejects.toMatchObject({ code: 'instance_not_found' })
})
