import { z } from 'zod'
import { InvalidInput } from '../../lib/problem.ts'
import { faultOfTiming } from '../../models/deploy/scheduled-tasks.ts'

/** When something that is scheduled runs. */
export const timingFields = {
  frequency: z.string().min(9).max(100).describe('A cron expression of five fields, such as `*/5 * * * *`'),
  timezone: z.string().min(1).max(64).describe('An IANA time zone'),
}

/** Throws InvalidInput for a cron expression or a time zone that is none. */
export function needTiming(timing: { frequency: string; timezone: string }): void {
  const message = faultOfTiming(timing)
  if (message === null) return
  const pointer = /time ?zone/i.test(message) ? '/timezone' : '/frequency'
  throw new InvalidInput(422, [{ pointer, message }])
}
