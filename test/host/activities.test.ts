import { expect, test } from '@jest/globals'
import { failureOf, permanently } from '../../activities/failures.ts'
import { withImage } from '../../activities/host/containers.ts'
import { EngineUnavailable, ImageNotFound, PortInUse } from '../../drivers/errors.ts'
import { NameTaken } from '../../lib/problem.ts'
import { DatabaseAway } from '../../models/database-away.ts'

test('a permanent fault is not retried and has a code; other faults are retried; other values pass unchanged', () => {
  const cause = new Error('bind: address already in use')
  expect(failureOf(new PortInUse(80, cause))).toMatchObject({
    message: 'The host port 80 is in use',
    type: 'port_in_use',
    nonRetryable: true,
    details: [{ port: 80 }],
  })
  expect(failureOf(new EngineUnavailable('away'))).toMatchObject({
    type: 'engine_unavailable',
    nonRetryable: false,
  })
  expect(failureOf(cause)).toBe(cause)
})

test('a refusal ends a step; a database that does not answer is asked again', async () => {
  expect(await endOf(new NameTaken('container', 'x'))).toMatchObject({
    type: 'name_taken',
    nonRetryable: true,
  })
  const away = new DatabaseAway()
  expect(await endOf(away)).toBe(away)
})

test('a start whose image has gone since it was pulled pulls it again, once', async () => {
  const gone = new ImageNotFound('some/image')
  const said: string[] = []
  const running = (failures: Error[]) =>
    withImage(
      async () => {
        said.push('run')
        const failure = failures.shift()
        if (failure) throw failure
        return 'running'
      },
      async () => said.push('pull'),
    )
  expect(await running([gone])).toBe('running')
  await expect(running([gone, gone])).rejects.toBe(gone)
  await expect(running([new PortInUse(80)])).rejects.toMatchObject({ code: 'port_in_use' })
  expect(said).toEqual(['run', 'pull', 'run', 'run', 'pull', 'run', 'run'])
})

/** How a step ends that throws this. */
async function endOf(error: Error): Promise<unknown> {
  try {
    return await permanently(async () => {
      throw error
    })
  } catch (failure) {
    return failureOf(failure)
  }
}
