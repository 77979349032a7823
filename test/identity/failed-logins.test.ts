import { afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { attempt } from '../../models/identity/attempts.ts'
import { Attempt } from '../../models/identity/guesses.ts'
import { makeMachine, requestToken } from '../support/api-clients.ts'
import type { Answer } from '../support/client.ts'
import '../support/exclusive.ts'
import { codeOf, login, password, peopleOf } from '../support/people.ts'
import { refusing } from '../support/refusals.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

let tenant: TestTenant
beforeAll(async () => {
  tenant = await makeTenant()
})
// All tests log in from one address, so clear the failures before each test.
beforeEach(() => Attempt.deleteMany())
afterEach(() => Attempt.deleteMany())
const refused = refusing(() => tenant)
const { make: makePerson, enrolled, remembered } = peopleOf(() => tenant)

const fail = (email: string, times: number): Promise<Answer[]> =>
  Promise.all(Array.from({ length: times }, () => login({ email, password: 'wrong' })))
const statuses = (answers: Answer[]): number[] =>
  answers.map(({ status }) => status).toSorted((a, b) => a - b)

/** Fails from networks that nobody has logged in from. This process acts as another replica. */
async function failFrom(addresses: string[], email: string): Promise<void> {
  const wrong = new Error('wrong')
  for (const address of addresses) {
    const failing = attempt({ account: email, address }, () => Promise.reject(wrong))
    await failing.catch((error: unknown) => error)
  }
}
const networks = (count: number) => Array.from({ length: count }, (_, i) => `192.0.2.${i + 1}`)
/** Makes the pauses under way end now. */
const passTime = () => Attempt.updateMany({}, { $set: { free_at: new Date(0) } })
const forgottenSec = { place: 86_400, network: 900 }
/** Makes these pauses begin now: a login counts from its begin, and takes seconds on a busy machine. */
const beginPauses = (kind: keyof typeof forgottenSec) => {
  const begun = { $subtract: ['$expire', forgottenSec[kind] * 1000] }
  const free_at = { $add: ['$$NOW', { $subtract: ['$free_at', begun] }] }
  return Attempt.updateMany({ key: { $regex: `^${kind}:` } }, [{ $set: { free_at } }], {
    updatePipeline: true,
  })
}
const pauseOf = ({ headers }: Answer): number => Number(headers.get('retry-after'))

describe('failed logins', () => {
  test('delay the next login to the account from there, longer each time, known or unknown, in parallel or not', async () => {
    const { email } = await makePerson()
    for (const address of [email, `${newId()}@example.com`]) {
      expect(statuses(await fail(address, 8))).toEqual([401, 401, 401, 401, 401, 429, 429, 429])
      const pauses = []
      for (let round = 0; round < 6; round++) {
        await beginPauses('place')
        const answer = await refused(() => login({ email: address.toUpperCase(), password }))
        expect(answer).toMatchObject({ status: 429, body: { code: 'too_many_requests' } })
        pauses.push(Math.ceil(pauseOf(answer) / 15))
        await passTime()
        expect(await login({ email: address, password: 'wrong' })).toMatchObject({ status: 401 })
      }
      expect(pauses).toEqual([1, 2, 4, 8, 16, 20])
    }
    await passTime()
    expect(await login({ email, password })).toMatchObject({ status: 200 })
  })

  test('start again after a successful login', async () => {
    const { email } = await makePerson()
    for (let round = 0; round < 3; round++) {
      expect(statuses(await fail(email, 4))).toEqual([401, 401, 401, 401])
      expect(await login({ email, password })).toMatchObject({ status: 200 })
    }
  })

  test('count wrong codes as wrong passwords; a login without a code resets nothing', async () => {
    const { credentials, secret } = await enrolled()
    for (let i = 0; i < 5; i++) {
      expect(await login(credentials)).toMatchObject({ body: { code: 'otp_required' } })
      expect(await login({ ...credentials, otp: '000000' })).toMatchObject({ body: { code: 'invalid_otp' } })
    }
    expect(await login({ ...credentials, otp: codeOf(secret) })).toMatchObject({ status: 429 })
  })

  test('of others do not delay a remembered device, nor a network where the account has logged in', async () => {
    const { credentials, remember_token, email } = await remembered()
    await failFrom(networks(40), email)
    expect(await login({ ...credentials, remember_token })).toMatchObject({ status: 200 })
    expect(await login(credentials)).toMatchObject({ body: { code: 'otp_required' } })
    await fail(email, 8)
    expect(await login(credentials)).toMatchObject({ status: 429 })
    expect(await login({ ...credentials, remember_token })).toMatchObject({ status: 200 })
    const guess = { email, password: 'wrong', remember_token }
    for (let i = 0; i < 5; i++) expect(await login(guess)).toMatchObject({ status: 401 })
    expect(await login({ ...credentials, remember_token })).toMatchObject({ status: 429 })
  })

  test('from many networks at one account delay all of them, by a minute at most', async () => {
    const { email } = await makePerson()
    await Attempt.deleteMany() // as if nobody had logged in from here
    await failFrom(networks(20), email)
    for (let round = 0; round < 8; round++) {
      await passTime()
      await failFrom(['198.51.100.1'], email)
    }
    const answer = await refused(() => login({ email, password }))
    expect(answer).toMatchObject({ status: 429 })
    expect(pauseOf(answer)).toBeLessThanOrEqual(60)
  })

  test('at many accounts from one address keep out nobody who has logged in there, and others for seconds', async () => {
    const { email } = await makePerson()
    const fresh = await makePerson()
    await Attempt.deleteMany({ key: { $regex: fresh.email } })
    for (let i = 0; i < 20; i++) await fail(`${newId()}@example.com`, 1)
    for (let i = 0; i < 6; i++) {
      await passTime()
      await fail(`${newId()}@example.com`, 1)
    }
    expect(await login({ email, password })).toMatchObject({ status: 200 })
    await beginPauses('network')
    const answer = await refused(() => login({ email: fresh.email, password }))
    expect(answer).toMatchObject({ status: 429 })
    expect(pauseOf(answer)).toBeLessThanOrEqual(10)
    await passTime()
    expect(await login({ email: fresh.email, password })).toMatchObject({ status: 200 })
  })

  test('are counted by all replicas together', async () => {
    const { email } = await makePerson()
    await failFrom(
      Array.from({ length: 5 }, () => '127.0.0.1'),
      email,
    )
    expect(await login({ email, password })).toMatchObject({ status: 429 })
  })
})

test('wrong secrets of API clients from one address do not keep others there from their tokens', async () => {
  const machine = await makeMachine(tenant.owner, ['containers:read'])
  const wrong = () => requestToken({ ...machine, client_secret: 'wrong' })
  const answers = await Promise.all(Array.from({ length: 22 }, wrong))
  expect(statuses(answers)).toEqual([...Array.from({ length: 20 }, () => 401), 429, 429])
  expect(await requestToken(machine)).toMatchObject({ status: 200 })
})
