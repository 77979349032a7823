import { describe, expect, test } from '@jest/globals'
import * as fc from 'fast-check'
import { damaged, makeLineJoiner } from '../../api/compute/observation/log-lines.ts'

// From the engine's log entries to the original output.

const entry = (log: string, stream = 'stdout'): string =>
  `${JSON.stringify({ log, stream, time: '2026-01-01T00:00:00Z' })}\n`

/** The joined output when the entries arrive in parts of these lengths. */
function joined(text: string, lengths: number[] = []): string {
  const joiner = makeLineJoiner()
  const bytes = Buffer.from(text)
  let out = ''
  let at = 0
  for (const length of [...lengths, bytes.length]) {
    out += joiner.push(bytes.subarray(at, at + length)).toString()
    at += length
  }
  return out + joiner.end().toString()
}

describe('log lines', () => {
  test('are whole, although the engine split them and the other stream wrote in between', () => {
    const entries = [entry('long '), entry('an error\n', 'stderr'), entry('line\n'), entry('next\n')]
    expect(joined(entries.join(''))).toBe('an error\nlong line\nnext\n')
  })

  test('are the same wherever the bytes are split, also within a character', () => {
    const text = [entry('grüße 👋\n'), entry('a part, '), entry('the rest\n'), entry('no end')].join('')
    fc.assert(
      fc.property(fc.array(fc.nat({ max: 40 })), (lengths) => {
        expect(joined(text, lengths)).toBe('grüße 👋\na part, the rest\nno end')
      }),
    )
  })

  test('name a damaged entry, and continue after it', () => {
    const text = `${entry('one\n')}{"log":"tw\n${entry('three\n')}{"log":"fo`
    expect(joined(text)).toBe(`one\n[keelson: ${damaged}]\nthree\n[keelson: ${damaged}]\n`)
  })

  test('name an entry that a full disk cut, count it as missing, and keep the one that follows on its line', () => {
    const quoted = entry('a "{\\"log\\":" is no begin {"log":"\n')
    let missing = 0
    const joiner = makeLineJoiner(() => missing++)
    const text = `${quoted}${entry('two\n').slice(0, 15)}${entry('nine\n')}`
    expect(joiner.push(Buffer.from(text)).toString()).toBe(
      `a "{\\"log\\":" is no begin {"log":"\n[keelson: ${damaged}]\nnine\n`,
    )
    expect(missing).toBe(1)
  })

  test('of more than a MiB are passed on in parts, which bounds the memory', () => {
    const part = 'x'.repeat(16 * 1024)
    const text = entry(part).repeat(65) + entry('an error\n', 'stderr') + entry('end\n')
    expect(joined(text)).toBe(`${part.repeat(65)}an error\nend\n`)
  })
})
