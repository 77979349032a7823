import { expect, test } from '@jest/globals'
import { failureOf } from '../../activities/failures.ts'
import { EngineUnavailable, PortInUse } from '../../drivers/errors.ts'

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
