import { describe, expect, test } from '@jest/globals'
import * as fc from 'fast-check'
import { Webhook } from 'standardwebhooks'
import { newWebhookSecret, verifyWebhook, webhookHeaders } from '../../lib/standard-webhooks.ts'
import { seed } from '../support/sampled.ts'

// Signatures in the Standard Webhooks form, against that project's library and the vector of its tests.

const secret = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'
const id = 'msg_p5jXN8AQM9LWM0D4loKWxJek'
const time = new Date(1_614_265_330_000)
const body = '{"test": 2432232314}'
const signature = 'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE='
const other = 'v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc='

const headers = {
  'webhook-id': id,
  'webhook-timestamp': '1614265330',
  'webhook-signature': signature,
}
const after = (ms: number): Date => new Date(time.getTime() + ms)
const verify = (
  change: Record<string, string | string[] | undefined> = {},
  { secrets = [secret], raw = body, now = time }: { secrets?: string[]; raw?: string; now?: Date } = {},
) => verifyWebhook(secrets, { ...headers, ...change }, Buffer.from(raw), now)

describe('a webhook that arrives', () => {
  test('with the signature of the library’s own vector is taken', () => {
    expect(verify()).toEqual({ id, time })
    expect(webhookHeaders([secret], { id, time, body })).toEqual(headers)
  })

  test('is taken if the library has signed it', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme' }), fc.stringMatching(/^[a-z0-9_-]{1,40}$/), (raw, name) => {
        const own = newWebhookSecret()
        const signed = {
          ...headers,
          'webhook-id': name,
          'webhook-signature': new Webhook(own).sign(name, time, raw),
        }
        expect(verifyWebhook([own], signed, Buffer.from(raw), time)).toEqual({ id: name, time })
        expect(verifyWebhook([own], signed, Buffer.from(`${raw} `), time)).toBeNull()
        expect(verifyWebhook([secret], signed, Buffer.from(raw), time)).toBeNull()
      }),
      { seed },
    )
  })

  test('is checked by its bytes, which need not be text', () => {
    const raw = Uint8Array.from({ length: 256 }, (_, byte) => byte)
    const { 'webhook-signature': made } = webhookHeaders([secret], { id, time, body: 'x' })
    expect(verifyWebhook([secret], { ...headers, 'webhook-signature': made }, raw, time)).toBeNull()
    // Both bytes are no UTF-8, and would be the same replacement character.
    const [one, two] = [Uint8Array.of(0xff), Uint8Array.of(0xfe)]
    const replaced = webhookHeaders([secret], { id, time, body: '\ufffd' })
    for (const bytes of [one, two]) expect(verifyWebhook([secret], replaced, bytes, time)).toBeNull()
  })

  test.each([
    ['one of several signatures', `${other} v2,${signature.slice(3)} ${signature} ${other}`],
    ['a signature twice', `${signature} ${signature}`],
    ['a signature of another kind', `v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5Bdqzg== ${signature}`],
  ])('may have %s', (_, signatures) => {
    expect(verify({ 'webhook-signature': signatures })).toEqual({ id, time })
  })

  test.each<[string, Record<string, string | string[] | undefined>]>([
    ['no id', { 'webhook-id': undefined }],
    ['another id', { 'webhook-id': `${id}x` }],
    ['an empty id', { 'webhook-id': '' }],
    ['no time', { 'webhook-timestamp': undefined }],
    ['another time', { 'webhook-timestamp': '1614265331' }],
    ['a time that is no number', { 'webhook-timestamp': 'hello' }],
    ['a time with more behind it', { 'webhook-timestamp': '1614265330x' }],
    ['a time below 0', { 'webhook-timestamp': '-1614265330' }],
    ['no signature', { 'webhook-signature': undefined }],
    ['an empty signature', { 'webhook-signature': '' }],
    ['another signature', { 'webhook-signature': other }],
    ['a part of the signature', { 'webhook-signature': signature.slice(0, 8) }],
    ['a version alone', { 'webhook-signature': 'v1,' }],
    ['a signature without its version', { 'webhook-signature': signature.slice(3) }],
    ['a signature of another version', { 'webhook-signature': `v2,${signature.slice(3)}` }],
    ['a signature in other letters', { 'webhook-signature': signature.toLowerCase() }],
    ['a signature without its padding', { 'webhook-signature': signature.slice(0, -1) }],
    ['a list of headers', { 'webhook-signature': [signature] }],
  ])('with %s is refused', (_, change) => {
    expect(verify(change)).toBeNull()
  })

  test('with a full stop in its id is refused: another webhook’s signature would fit it', () => {
    const { 'webhook-timestamp': timestamp } = headers
    const raw = `${timestamp}.${body}`
    const signed = webhookHeaders([secret], { id: 'a', time, body: raw })
    expect(verifyWebhook([secret], signed, Buffer.from(raw), time)).toEqual({ id: 'a', time })
    // The same text is signed: `a.<time>.<time>.<body>`.
    const forged = { ...signed, 'webhook-id': `a.${timestamp}` }
    expect(webhookHeaders([secret], { id: `a.${timestamp}`, time, body })).toEqual(forged)
    expect(verifyWebhook([secret], forged, Buffer.from(body), time)).toBeNull()
  })

  test.each([
    [301_000, false],
    [300_000, true],
    [-300_999, true],
    [-301_000, false],
  ])('%i ms from now is taken: %p', (ms, isTaken) => {
    expect(verify({}, { now: after(-ms) }) !== null).toBe(isTaken)
  })

  test('may be signed by any of the secrets, and by no other', () => {
    const [former, stranger] = [newWebhookSecret(), newWebhookSecret()]
    expect(verify({}, { secrets: [former, secret] })).toEqual({ id, time })
    const both = webhookHeaders([stranger, former], { id, time, body })
    expect(verifyWebhook([secret, former], both, Buffer.from(body), time)).toEqual({ id, time })
    expect(verify({}, { secrets: [former, stranger] })).toBeNull()
    expect(verify({}, { secrets: [] })).toBeNull()
  })

  test('is refused with any byte of its signature changed', () => {
    fc.assert(
      fc.property(
        fc.nat({ max: signature.length - 1 }),
        fc.string({ minLength: 1, maxLength: 1 }),
        (at, letter) => {
          fc.pre(signature[at] !== letter && letter !== ' ')
          const changed = signature.slice(0, at) + letter + signature.slice(at + 1)
          expect(verify({ 'webhook-signature': changed })).toBeNull()
        },
      ),
      { seed, numRuns: 500 },
    )
  })
})
