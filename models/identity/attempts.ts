import mongoose from 'mongoose'
import { RateLimiterMongo, RateLimiterRes } from 'rate-limiter-flexible'
import { networkOf } from '../../lib/addresses.ts'
import { Problem, TooManyRequests } from '../../lib/problem.ts'
import { Attempt, beginGuess, clearGuesses, type Guess, type Pace, takeBackGuess } from './guesses.ts'

const daySec = 24 * 3600
// Pauses grow with each failure, up to a bound: nobody is locked out, however many failures others make.
const paces = {
  /** Guesses at one account from one network, or by one device. */
  place: { free: 5, firstSec: 15, longestSec: 5 * 60, forgottenSec: daySec },
  /** Guesses at one account from all networks where it has not logged in before. */
  account: { free: 20, firstSec: 1, longestSec: 60, forgottenSec: daySec },
  /** Guesses from one network at all accounts that have not logged in there before. */
  network: { free: 20, firstSec: 1, longestSec: 10, forgottenSec: 15 * 60 },
} satisfies Record<string, Pace>

/** Who tries to prove that an account is theirs, and from where. */
export interface Guesser {
  /** The e-mail address or the id of the account, known or not. */
  account: string
  address: string
  /** What only a known device has: its remembered token, or its session. Guesses of others do not slow it down. */
  device?: string | undefined
  /** Keeps logins of different kinds apart, if one address serves several. */
  kind?: string
}

/**
 * An incomplete attempt without a wrong guess: it counts neither as a failure nor as a success that clears failures.
 */
export class Unfinished extends Error {
  override readonly name = 'Unfinished'
}

/**
 * Runs `work`, which throws if a guess was wrong. Throws TooManyRequests during the pause after too many failures. An
 * attempt counts when it starts, so parallel attempts get no more guesses. A network from which the account has logged in
 * within 30 days is not slowed down by failures elsewhere or at other accounts, so behind a proxy one of its users cannot
 * lock out the others.
 */
export async function attempt<T>(who: Guesser, work: () => Promise<T>): Promise<T> {
  const begun = await begin(who)
  try {
    const result = await work()
    const [first, ...others] = begun
    await Promise.all([first && clearGuesses(first.key), ...others.map(takeBackGuess), notePlace(who)])
    return result
  } catch (error) {
    if (!(error instanceof Unfinished)) throw error
    await Promise.all(begun.map(takeBackGuess))
    throw error.cause
  }
}

/** Counts the guess at the place first, whose count a success clears. */
async function begin(who: Guesser): Promise<Guess[]> {
  const { account, network, place } = keysOf(who)
  const isKnown = who.device !== undefined || (await isKnownPlace(place))
  const wanted: [string, Pace][] = [[place, paces.place]]
  if (!isKnown) wanted.push([account, paces.account], [network, paces.network])
  const begun: Guess[] = []
  try {
    for (const [key, pace] of wanted) begun.push(await beginGuess(key, pace))
    return begun
  } catch (error) {
    await Promise.all(begun.map(takeBackGuess)) // the guess is not made
    throw error
  }
}

function keysOf({ account, address, device, kind = 'login' }: Guesser) {
  const name = `${kind}:${account.toLowerCase()}`
  const network = networkOf(address)
  const allPlaces = `place:${name}:`
  return {
    account: `account:${name}`,
    network: `network:${kind}:${network}`,
    allPlaces,
    place: allPlaces + (device === undefined ? network : `device ${device}`),
  }
}

const knownKey = (place: string): string => `known:${place}`
const knownMs = 30 * daySec * 1000

const isKnownPlace = async (place: string): Promise<boolean> =>
  (await Attempt.exists({ key: knownKey(place), expire: { $gt: new Date() } })) !== null

async function notePlace(who: Guesser): Promise<void> {
  if (who.device !== undefined) return
  const expire = new Date(Date.now() + knownMs)
  await Attempt.updateOne(
    { key: knownKey(keysOf(who).place) },
    { $set: { expire, points: 1 } },
    { upsert: true },
  )
}

/**
 * Clears all failures at an account after its owner has proved their identity in another way, and lets them log in from
 * the address where they did.
 */
export async function clearFailures({
  address,
  ...who
}: Omit<Guesser, 'address'> & { address?: string }): Promise<void> {
  const { account, allPlaces } = keysOf({ ...who, address: '' })
  await Promise.all([
    clearGuesses(account),
    Attempt.deleteMany({ key: { $gte: allPlaces, $lt: `${allPlaces}\uffff` } }),
    address === undefined ? null : notePlace({ ...who, address }),
  ])
}

const windowSec = 15 * 60
// In MongoDB: all replicas of the API share the counts.
const makeLimiter = (keyPrefix: string, points: number): RateLimiterMongo =>
  new RateLimiterMongo({
    storeClient: mongoose.connection.getClient(),
    dbName: mongoose.connection.name,
    tableName: Attempt.collection.name,
    disableIndexesCreation: true, // the schema has them
    keyPrefix,
    points,
    duration: windowSec,
  })
const makeLimiters = () => ({
  client: makeLimiter('client', 20),
  reset: makeLimiter('reset', 5),
  /** To one address, by one tenant and by all of them; and by one tenant to all addresses. */
  invited: makeLimiter('invited', 3),
  invitedByAll: makeLimiter('invited-by-all', 10),
  invitations: makeLimiter('invitations', 100),
})
let made: ReturnType<typeof makeLimiters> | undefined
const limiters = (): ReturnType<typeof makeLimiters> => (made ??= makeLimiters())

/**
 * Runs `work`, which throws a Problem if a secret is wrong. After 20 failures from a network in 15 minutes, throws TooManyRequests
 * instead. A right secret is always taken, since these cannot be guessed: the count keeps nobody else out.
 */
export async function attemptFrom<T>(address: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    if (error instanceof Problem) await count(limiters().client, networkOf(address))
    throw error
  }
}

/** Whether another mail may go to this address: at most five in 15 minutes, to prevent flooding. */
export const mayMail = (email: string): Promise<boolean> => isWithin(limiters().reset, email.toLowerCase())

/**
 * Counts an invitation. Throws TooManyRequests after 3 of this tenant to the address in 15 minutes, or 100 to all. False
 * after 10 of all tenants to the address: then no mail goes out, and the tenant is not told, since it would learn of the
 * others.
 */
export async function mayInvite(tenantId: string, email: string): Promise<boolean> {
  const address = email.toLowerCase()
  await count(limiters().invited, `${tenantId}:${address}`)
  await count(limiters().invitations, tenantId)
  return isWithin(limiters().invitedByAll, address)
}

async function isWithin(limiter: RateLimiterMongo, key: string): Promise<boolean> {
  try {
    await count(limiter, key)
    return true
  } catch (error) {
    if (error instanceof TooManyRequests) return false
    throw error
  }
}

async function count(limiter: RateLimiterMongo, key: string): Promise<void> {
  try {
    await limiter.consume(key)
  } catch (refused) {
    if (!(refused instanceof RateLimiterRes)) throw refused
    throw new TooManyRequests(Math.max(1, Math.ceil(refused.msBeforeNext / 1000)))
  }
}
