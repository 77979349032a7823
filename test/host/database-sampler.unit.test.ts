import { expect, test } from '@jest/globals'
import type { TaskCommandResult } from '../../drivers/swarms.ts'
import { makeLogger } from '../../lib/log.ts'
import { makeDatabaseSampler, metricsIn } from '../../worker/host/database-sampler.ts'

test('the output of a script is read line by line, and what is no known metric is left out', () => {
  const output = 'WARNING: metric\nmetric 3 connections\nmetric  keys\nmetric 7 secrets\nmetric -1 queries\n'
  expect(metricsIn(output)).toEqual({ connections: 3 })
})

test('an engine that hangs is not asked twice, and keeps nothing of the others back for long', async () => {
  const asked: string[] = []
  const sent: string[][] = []
  const sampler = makeDatabaseSampler({
    commands: {
      run(_, id) {
        asked.push(id)
        const answer: TaskCommandResult = { exit_code: 0, output: 'metric 1 connections\n', timed_out: false }
        return id === 'hangs' ? new Promise(() => undefined) : Promise.resolve(answer)
      },
    },
    machines: () => ['machine'],
    wanted: () => {
      const databases = ['hangs', 'answers'].map((id) => ({
        id,
        machine_id: 'machine',
        every_sec: 1,
        script: '',
      }))
      return Promise.resolve({ version: 'v1', databases })
    },
    send: ({ databases }) => {
      sent.push(databases.map(({ id }) => id))
      return Promise.resolve()
    },
    log: makeLogger('host', 'silent'),
    longestWaitMs: 1_200, // longer than the interval: the second time all are due
  })
  await sampler.apply()
  expect(sampler.version()).toBe('v1')
  await sampler.sample()
  await sampler.sample()
  expect(sent).toEqual([['answers'], ['answers']])
  expect(asked.filter((id) => id === 'hangs')).toHaveLength(1)
})
