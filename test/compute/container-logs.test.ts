import { beforeAll, expect, test } from '@jest/globals'
import { type ContainerBody, shell } from '../support/client.ts'
import { eventually } from '../support/eventually.ts'
import { facts } from '../support/stack.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

let tenant: TestTenant
let container: ContainerBody
beforeAll(async () => {
  tenant = await makeTenant()
  container = await tenant.containers.make(
    shell('for i in 1 2 3 4 5; do echo line $i; done; echo oops >&2; sleep 3600'),
  )
  await eventually(async () => (await lines()).length >= 6)
})

interface Line {
  time?: string
  stream: string
  line: string
}
const path = () => `/api/v1/containers/${container.id}/logs`
async function lines(query = ''): Promise<Line[]> {
  const { status, body } = await tenant.owner.ask('GET', `${path()}${query}`)
  expect(status).toBe(200)
  const text = String(body['text']).trimEnd()
  return text ? text.split('\n').map((line) => JSON.parse(line) as Line) : []
}
const words = (of: Line[]): string[] => of.map(({ line }) => line)

test('logs return all output of a container, with stream and time', async () => {
  const all = await lines()
  expect(words(all.filter(({ stream }) => stream === 'stdout'))).toEqual(
    [1, 2, 3, 4, 5].map((i) => `line ${i}`),
  )
  expect(words(all.filter(({ stream }) => stream === 'stderr'))).toEqual(['oops'])
  for (const { time } of all) expect(Date.parse(time ?? '')).toBeGreaterThan(Date.now() - 600_000)
})

test('lines returns the last lines', async () => {
  expect(await lines('?lines=2')).toHaveLength(2)
  expect(await lines('?lines=0')).toEqual([])
})

test('since returns what was written at that time or later', async () => {
  const all = await lines()
  const third = all[2]?.time ?? ''
  // The engine does not order the entries by time: it reads the two streams side by side.
  const expected = all.filter(({ time = '' }) => time >= third)
  expect(expected.length).toBeGreaterThanOrEqual(3)
  expect(await lines(`?since=${encodeURIComponent(third)}`)).toEqual(expected)
  expect(await lines('?since=2999-01-01T00:00:00Z')).toEqual([])
})

test('timestamps=false omits the time', async () => {
  expect((await lines('?timestamps=false&lines=1'))[0]).not.toHaveProperty('time')
})

test.each(['lines=-1', 'lines=many', 'since=yesterday', 'follow=perhaps', 'tail=5'])(
  'logs refuse ?%s',
  async (query) => {
    const answer = await tenant.owner.ask('GET', `${path()}?${query}`)
    expect(answer).toMatchObject({ status: 400, body: { code: 'invalid_input' } })
  },
)

test('follow sends server-sent events with an id to resume from, until the reader leaves', async () => {
  const { id } = await tenant.containers.make(
    shell('i=0; while :; do i=$((i+1)); echo line $i; sleep 0.05; done'),
  )
  const gone = new AbortController()
  const answer = await fetch(`${facts().api_url}/api/v1/containers/${id}/logs?follow=true&lines=0`, {
    headers: { authorization: `Bearer ${tenant.owner.token}` },
    signal: gone.signal,
  })
  expect(answer.headers.get('content-type')).toBe('text/event-stream')
  const events: { id: string; data: Line }[] = []
  let text = ''
  for await (const chunk of answer.body ?? []) {
    text += Buffer.from(chunk).toString()
    const whole = text.split('\n\n')
    text = whole.pop() ?? ''
    for (const event of whole) {
      const [, at, data] = /^id: (.*)\ndata: (.*)$/.exec(event) ?? []
      if (at && data) events.push({ id: at, data: JSON.parse(data) as Line })
    }
    if (events.length >= 5) break
  }
  gone.abort()
  const numbers = events.map(({ data }) => Number(data.line.split(' ')[1]))
  expect(numbers).toEqual(numbers.map((_, i) => (numbers[0] ?? 0) + i))
  for (const event of events) expect(event.id).toBe(event.data.time)
})

test('a container that was never on a host has no logs', async () => {
  const { id, operation } = await tenant.containers.create({
    cpu_cores: 63,
    memory_mib: 250_000,
    image: 'localhost:1/none',
  })
  await operation.end()
  const answer = await tenant.owner.ask('GET', `/api/v1/containers/${id}/logs`)
  expect(answer).toMatchObject({ status: 409, body: { code: 'state_conflict' } })
})
