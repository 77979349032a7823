import { randomBytes } from 'node:crypto'
import { text } from 'node:stream/consumers'
import { finished } from 'node:stream/promises'
import { expect, test } from '@jest/globals'
import { newId } from '../../../lib/ids.ts'
import { eventually } from '../../support/eventually.ts'
import { machines, script, start, withMachines } from '../../support/machine-hosts.ts'

withMachines('pipes into machines', () => {
  let id = ''
  const sleeping = async (): Promise<string> => {
    id = (await start(script('exec sleep 600'))).id
    return id
  }

  test('a pipe carries bytes both ways unchanged, and ends with its command', async () => {
    await sleeping()
    const pipe = await machines.pipe(id, ['cat'])
    const sent = randomBytes(1_000_000)
    const parts: Buffer[] = []
    pipe.on('data', (part: Buffer) => parts.push(part))
    pipe.end(sent)
    await finished(pipe)
    expect(Buffer.concat(parts).equals(sent)).toBe(true)

    // A command that ends before its input does not hold up the writer.
    const deaf = await machines.pipe(id, ['true'])
    deaf.resume()
    deaf.end(sent)
    await finished(deaf)
  })

  test('a pipe fails with what its command says on stderr', async () => {
    await sleeping()
    const pipe = await machines.pipe(id, ['sh', '-c', 'echo no such socket >&2; exit 1'])
    pipe.resume()
    await expect(finished(pipe)).rejects.toMatchObject({
      code: 'engine_unavailable',
      cause: { message: 'no such socket' },
    })
  })

  test('a pipe that is destroyed ends the input of its command', async () => {
    await sleeping()
    const pipe = await machines.pipe(id, ['sh', '-c', 'cat; echo over >/tmp/over'])
    pipe.destroy()
    await eventually(async () => {
      const look = await machines.pipe(id, ['cat', '/tmp/over'])
      return (await text(look).catch(() => '')).includes('over')
    })
  })

  test('a pipe into a machine that does not run is refused', async () => {
    await sleeping()
    await machines.stop(id, 0)
    await expect(machines.pipe(id, ['cat'])).rejects.toMatchObject({ code: 'instance_not_running' })
    await expect(machines.pipe(newId(), ['cat'])).rejects.toMatchObject({ code: 'instance_not_found' })
  })
})
