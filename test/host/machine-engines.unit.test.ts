import { PassThrough } from 'node:stream'
import { expect, test } from '@jest/globals'
import { EngineUnavailable, InstanceNotFound, InstanceNotRunning } from '../../drivers/errors.ts'
import { untilTheyStart } from '../../worker/host/machine-engines.ts'

/** Pipes into one machine, at times that the test sets. */
function pipes() {
  const machine = { at: 0, error: null as Error | null }
  const engine = {
    async pipe() {
      if (machine.error) throw machine.error
      return new PassThrough()
    },
  }
  const { pipe } = untilTheyStart(engine, () => machine.at)
  const atSec = async (sec: number): Promise<unknown> => {
    machine.at = sec * 1000
    return pipe('one', ['true']).then(
      () => 'connected',
      (error: unknown) => error,
    )
  }
  return { machine, atSec }
}

test('a machine that has just ended is an engine that does not answer, and later one that does not run', async () => {
  const { machine, atSec } = pipes()
  machine.error = new InstanceNotRunning('one')
  for (const sec of [0, 50, 100, 150]) expect(await atSec(sec)).toBeInstanceOf(EngineUnavailable)
  expect(await atSec(190)).toBe(machine.error)
})

test('a machine that started again, or was left alone for long, counts as one that has just ended', async () => {
  const { machine, atSec } = pipes()
  const ended = new InstanceNotRunning('one')
  machine.error = ended
  for (const sec of [0, 50, 100, 150]) await atSec(sec)
  machine.error = null
  expect(await atSec(160)).toBe('connected')
  machine.error = ended
  expect(await atSec(190)).toBeInstanceOf(EngineUnavailable)
  expect(await atSec(400)).toBeInstanceOf(EngineUnavailable)
})

test('a machine that is gone is an error at once', async () => {
  const { machine, atSec } = pipes()
  machine.error = new InstanceNotFound('one')
  expect(await atSec(0)).toBe(machine.error)
})
