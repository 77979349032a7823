import { EventEmitter } from 'node:events'
import type { ServerResponse } from 'node:http'
import { expect, test } from '@jest/globals'
import { makeCap, makeListTurns } from '../../api/caps.ts'

const refusal = expect.objectContaining({ status: 429 })

test('a cap holds for each tenant alone, and a place is free when what took it closes', () => {
  const cap = makeCap(2, 'streams')
  const [first, ...others] = Array.from({ length: 5 }, () => new EventEmitter())
  cap('a', first as EventEmitter)
  cap('a', others[0] as EventEmitter)
  expect(() => cap('a', others[1] as EventEmitter)).toThrow(refusal)
  cap('b', others[2] as EventEmitter)
  first?.emit('close')
  cap('a', others[3] as EventEmitter)
  expect(() => cap('a', new EventEmitter())).toThrow(refusal)
})

test('a list keeps its place until its client has the answer, and lists of other tenants do not wait for it', async () => {
  const inTurn = makeListTurns(2, 1)
  const responses = Array.from({ length: 4 }, () => new EventEmitter() as ServerResponse)
  const [slow, next, waiting] = responses as [ServerResponse, ServerResponse, ServerResponse]
  const done: string[] = []
  const list = (tenant: string, response: ServerResponse, name: string) =>
    inTurn(tenant, response, async () => void done.push(name))
  await list('a', slow, 'slow')
  await list('a', next, 'next')
  const third = list('a', waiting, 'waiting')
  await expect(list('a', new EventEmitter() as ServerResponse, 'too many')).rejects.toThrow(refusal)
  await list('b', new EventEmitter() as ServerResponse, 'other')
  expect(done).toEqual(['slow', 'next', 'other'])
  slow.emit('close')
  await third
  expect(done).toEqual(['slow', 'next', 'other', 'waiting'])
})
