import { decodeJwt } from 'jose'
import { RateLimiterMemory } from 'rate-limiter-flexible'
import { gatewayAudience, gatewayTokenSec, type PublicKey } from '../lib/host-protocol.ts'
import { Unauthenticated } from '../lib/problem.ts'
import { claimedHost, verifyHostToken } from '../models/compute/host-tokens.ts'
import { Host } from '../models/compute/hosts.ts'
import { CallRefused, status } from './grpc.ts'

// Which host calls, and how much it may.

/** Within this time a host's key needs no look into the database, except for a poll. */
const keyGoodForMs = 60_000
/** How long a key is good while the database does not answer. */
const keyKeptForMs = 10 * 60_000
const databaseAnswersWithinMs = 3_000

interface KnownKey {
  public_key: PublicKey
  at: number
}

interface VerifiedToken {
  /** The public key that verified it. */
  x: string
  until: number
}

const mostTokens = 20_000

/** When a verified token ends: not later than its age allows, whatever it says. */
function endOf(token: string): number {
  const { exp = 0, iat = 0 } = decodeJwt(token)
  return Math.min(exp, iat + gatewayTokenSec) * 1000
}

export type Callers = ReturnType<typeof makeCallers>

/** Finds out which host calls: by a token that it signed with the key that it enrolled. */
export function makeCallers() {
  const known = new Map<string, KnownKey>()
  const verified = new Map<string, VerifiedToken>()

  /** A token comes with many calls, and its signature is verified once: that takes longer than the rest of a call. */
  async function verify(token: string, id: string, public_key: PublicKey | null): Promise<void> {
    const before = verified.get(token)
    if (before && before.until > Date.now() && before.x === public_key?.x) return
    await verifyHostToken(
      token,
      { id, public_key },
      { audience: gatewayAudience, maxAgeSec: gatewayTokenSec },
    )
    for (const [old, { until }] of verified) {
      if (until > Date.now() && verified.size < mostTokens) break
      verified.delete(old)
    }
    verified.set(token, { x: public_key?.x ?? '', until: endOf(token) })
  }

  /** Throws what the database throws. */
  async function look(id: string): Promise<PublicKey | null> {
    const host = await Host.collection.findOne<{ public_key: PublicKey | null }>(
      { _id: id as never },
      { projection: { public_key: 1 }, timeoutMS: databaseAnswersWithinMs },
    )
    const public_key = host?.public_key ?? null
    if (public_key) known.set(id, { public_key, at: Date.now() })
    else known.delete(id)
    return public_key
  }

  /**
   * While the database is away, hosts go on with the keys that it named before: what they have done is not lost, and a
   * host that is removed meanwhile has nothing to do.
   */
  async function keyOf(id: string, afresh: boolean): Promise<PublicKey | null> {
    const last = known.get(id)
    const ageMs = last ? Date.now() - last.at : Infinity
    if (last && !afresh && ageMs < keyGoodForMs) return last.public_key
    try {
      return await look(id)
    } catch (error) {
      if (last && ageMs < keyKeptForMs) return last.public_key
      throw new CallRefused(status.unavailable, `The database does not answer: ${String(error)}`)
    }
  }

  return {
    /** The id of the host. `afresh`: also notices that it has just been removed. Throws CallRefused. */
    async authenticate(authorization: string | undefined, afresh: boolean): Promise<string> {
      const [, token = ''] = /^Bearer +(\S+)$/i.exec(authorization ?? '') ?? []
      try {
        const id = claimedHost(token)
        const public_key = await keyOf(id, afresh)
        await verify(token, id, public_key)
        return id
      } catch (error) {
        if (error instanceof Unauthenticated) throw new CallRefused(status.unauthenticated, error.message)
        throw error
      }
    },
  }
}

// A host runs 200 steps at once; each says every few seconds that it lives.
const callsPerSec = 500
// The SDK's worker keeps 10 polls open; a host that restarts has those of two workers.
const pollsAtOnce = 40
const callsAtOnce = 300

/** Bounds what one host does at this gateway. */
export function makeLimits() {
  const rate = new RateLimiterMemory({ points: callsPerSec, duration: 1 })
  const open = new Map<string, number>()

  return {
    /** Runs the call, unless the host makes too many. Throws CallRefused. */
    async within<T>(hostId: string, isPoll: boolean, work: () => Promise<T>): Promise<T> {
      const key = `${hostId} ${isPoll ? 'polls' : 'calls'}`
      const running = (open.get(key) ?? 0) + 1
      open.set(key, running)
      try {
        if (running > (isPoll ? pollsAtOnce : callsAtOnce) || !(await mayCall(hostId)))
          throw new CallRefused(status.resourceExhausted, 'The host makes too many calls')
        return await work()
      } finally {
        const left = (open.get(key) ?? 1) - 1
        if (left) open.set(key, left)
        else open.delete(key)
      }
    },
  }

  async function mayCall(hostId: string): Promise<boolean> {
    return rate.consume(hostId).then(
      () => true,
      () => false,
    )
  }
}
