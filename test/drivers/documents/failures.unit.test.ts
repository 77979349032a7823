import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals'
import { Clock } from '../../../drivers/documents/clock.ts'
import { readable } from '../../../drivers/documents/failures.ts'
import type { Piece } from '../../../drivers/documents/pieces.ts'
import { DocumentRefused } from '../../../drivers/document-errors.ts'
import { listOf } from '../../support/documents/extracted.ts'

// What the extractor is made of, where no document shows it.

// oxlint-disable-next-line require-yield -- it fails before
function* failing(error: Error): Generator<Piece> {
  throw error
}

describe('a parser that fails', () => {
  test('refuses the document for good, with the failure as the cause', async () => {
    const cause = new TypeError('x is not a function')
    await expect(listOf(readable(failing(cause)))).rejects.toMatchObject({
      name: 'DocumentRefused',
      fault: 'broken',
      permanent: true,
      cause,
    })
  })

  test('keeps its own refusal, and what says that memory is exceeded', async () => {
    const refusal = new DocumentRefused('encrypted', 'The document is encrypted')
    await expect(listOf(readable(failing(refusal)))).rejects.toBe(refusal)
    const tooLarge = new RangeError('Invalid string length')
    await expect(listOf(readable(failing(tooLarge)))).rejects.toBe(tooLarge)
  })
})

describe('the clock of an extraction', () => {
  let ended: boolean
  let clock: Clock
  beforeEach(() => {
    jest.useFakeTimers()
    ended = false
    clock = new Clock(1_000, () => (ended = true))
  })
  afterEach(() => {
    clock.stop()
    jest.useRealTimers()
  })

  test('leaves out the time for which the content is waited for', () => {
    jest.advanceTimersByTime(600)
    clock.pause()
    jest.advanceTimersByTime(60_000)
    clock.goOn()
    jest.advanceTimersByTime(399)
    expect(ended).toBe(false)
    jest.advanceTimersByTime(1)
    expect(ended).toBe(true)
  })

  test('stays stopped when content comes late', () => {
    clock.pause()
    clock.stop()
    clock.goOn()
    jest.advanceTimersByTime(60_000)
    expect(ended).toBe(false)
  })
})
