import { describe, expect, test } from '@jest/globals'
import { makeBuildLog, redactor } from '../../activities/host/build-log.ts'
import type { BuildLogPart } from '../../lib/deploy-protocol.ts'

describe('the log of a build', () => {
  test.each([
    ['a secret', 'token is s3cret-value here', 'token is *** here'],
    ['its base64', `x ${Buffer.from('s3cret-value').toString('base64')} y`, 'x *** y'],
    ['its form in a URL', 'https://a:p%40ss%2Fword@b', 'https://a:***@b'],
    ['one line of several', 'key: second line of it', 'key: ***'],
    ['the longer of two that overlap', 's3cret-value-2', '***'],
  ])('hides %s', (_, line, shown) => {
    const hide = redactor(['s3cret-value', 's3cret-value-2', 'p@ss/word', 'first line\nsecond line of it\n'])
    expect(hide(line)).toBe(shown)
  })

  test('hides no secret so short that it would hide words', () => {
    expect(redactor(['a', ''])('a banana')).toBe('a banana')
  })

  test('is sent in order and whole, also if the platform does not answer at first', async () => {
    const parts: BuildLogPart[] = []
    let failures = 1
    const log = makeBuildLog([], async (part) => {
      if (failures-- > 0) throw new Error('away')
      parts.push(part)
    })
    for (let n = 0; n < 450; n++) log.say(`line ${n}`)
    await log.end()
    expect(parts.map(({ part, total }) => [part, total])).toEqual([
      [0, 200],
      [1, 400],
      [2, 450],
    ])
    expect(parts.flatMap(({ lines }) => lines.map(({ line }) => line))).toEqual(
      Array.from({ length: 450 }, (_, n) => `line ${n}`),
    )
  })

  test('leaves out what comes after 50,000 lines, and says so', async () => {
    let last = ''
    let count = 0
    const log = makeBuildLog([], async ({ lines }) => {
      count += lines.length
      last = lines.at(-1)?.line ?? last
    })
    for (let n = 0; n < 60_000; n++) log.say('line')
    await log.end()
    expect([count, last]).toEqual([50_000, 'further lines are left out'])
  })
})
