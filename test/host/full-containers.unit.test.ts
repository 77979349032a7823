import { expect, test } from '@jest/globals'
import type { FoundContainer } from '../../drivers/containers.ts'
import { makeLogger } from '../../lib/log.ts'
import { keepLayers } from '../../worker/host/parts/containers.ts'
import { eventually } from '../support/eventually.ts'

const log = makeLogger('host', 'fatal')
const started = (started_at: string) => ({ id: 'one', kind: 'container', engine_id: 'e', started_at })

test('a full container is stopped once for each of its starts, and again after a failure', async () => {
  let container = started('first')
  let failures = 1
  const stops: string[] = []
  const ending = new AbortController()
  let looks = 0
  const kept = keepLayers(
    {
      layers: {
        isFull: () => true,
        async look(found) {
          looks++
          return found
        },
      },
      engine: {
        async stop(id) {
          stops.push(`${id} ${container.started_at}`)
          if (failures-- > 0) throw new Error('the engine is away')
        },
      },
      instances: { found: () => [container as FoundContainer] },
      log,
    },
    ending.signal,
  )
  const looked = async (more: number): Promise<void> => {
    const from = looks
    await eventually(() => looks > from + more)
  }
  await eventually(() => stops.length === 2)
  await looked(2)
  expect(stops).toEqual(['one first', 'one first'])
  container = started('second')
  await eventually(() => stops.length === 3)
  await looked(2)
  expect(stops[2]).toBe('one second')
  expect(stops).toHaveLength(3)
  ending.abort()
  await kept
})
