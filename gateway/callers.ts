import { decodeJwt } from 'jose'
import { RateLimiterMemory } from 'rate-limiter-flexible'
import { gatewayAudience, gatewayTokenSec, type PublicKey } from '../lib/host-protocol.ts'
import { nameOf, type Party, type PartyKind } from '../lib/parties.ts'
import { claimedParty, verifyPartyToken } from '../lib/party-tokens.ts'
import { Unauthenticated } from '../lib/problem.ts'
import { CallRefused, status } from './grpc.ts'

// Which party calls, and how much it may.

/** Within this time a party's key needs no look into the database, except for a poll. */
const keyGoodForMs = 60_000
/** How long a key is good while the database does not answer. */
const keyKeptForMs = 10 * 60_000

/** Finds a party's public key by its id. Null if there is no such party. Throws what the database throws. */
export type FindKey = (id: string) => Promise<PublicKey | null>

interface KnownKey {
  public_key: PublicKey
  at: number
}

interface VerifiedToken {
  /** The public key that verified it. */
  x: string
  until: number
}

const mostKeys = 20_000
const mostTokens = 20_000

/** When a verified token ends: not later than its age allows, whatever it says. */
function endOf(token: string): number {
  const { exp = 0, iat = 0 } = decodeJwt(token)
  return Math.min(exp, iat + gatewayTokenSec) * 1000
}

export type Callers = ReturnType<typeof makeCallers>

/** Finds out which party calls: by a token that it signed with its key. A kind without a way to find keys is refused. */
export function makeCallers(find: Partial<Record<PartyKind, FindKey>>) {
  const known = new Map<string, KnownKey>()
  const verified = new Map<string, VerifiedToken>()

  /** A token comes with many calls, and its signature is verified once: that takes longer than the rest of a call. */
  async function verify(token: string, party: Party, public_key: PublicKey | null): Promise<void> {
    const before = verified.get(token)
    if (before && before.until > Date.now() && before.x === public_key?.x) return
    await verifyPartyToken(token, party, public_key, {
      audience: gatewayAudience,
      maxAgeSec: gatewayTokenSec,
    })
    for (const [old, { until }] of verified) {
      if (until > Date.now() && verified.size < mostTokens) break
      verified.delete(old)
    }
    verified.set(token, { x: public_key?.x ?? '', until: endOf(token) })
  }

  /** Throws what the database throws. */
  async function look(party: Party): Promise<PublicKey | null> {
    const public_key = (await find[party.kind]?.(party.id)) ?? null
    known.delete(nameOf(party))
    if (!public_key) return null
    for (const longestUnseen of known.keys()) {
      if (known.size < mostKeys) break
      known.delete(longestUnseen)
    }
    known.set(nameOf(party), { public_key, at: Date.now() })
    return public_key
  }

  /**
   * While the database is away, parties go on with the keys that it named before: what they have done is not lost, and a
   * party that is removed meanwhile has nothing to do.
   */
  async function keyOf(party: Party, afresh: boolean): Promise<PublicKey | null> {
    const last = known.get(nameOf(party))
    const ageMs = last ? Date.now() - last.at : Infinity
    if (last && !afresh && ageMs < keyGoodForMs) return last.public_key
    try {
      return await look(party)
    } catch (error) {
      if (last && ageMs < keyKeptForMs) return last.public_key
      throw new CallRefused(status.unavailable, `The database does not answer: ${String(error)}`)
    }
  }

  return {
    /** `afresh`: also notices that the party has just been removed. Throws CallRefused. */
    async authenticate(authorization: string | undefined, afresh: boolean): Promise<Party> {
      const [, token = ''] = /^Bearer +(\S+)$/i.exec(authorization ?? '') ?? []
      try {
        const party = claimedParty(token)
        await verify(token, party, await keyOf(party, afresh))
        return party
      } catch (error) {
        if (error instanceof Unauthenticated) throw new CallRefused(status.unauthenticated, error.message)
        throw error
      }
    },
  }
}

interface Limits {
  callsPerSec: number
  pollsAtOnce: number
  callsAtOnce: number
}

const limitsOf: Record<PartyKind, Limits> = {
  // A host runs 200 steps at once; each says every few seconds that it lives. The SDK's worker keeps 10 polls open, and a
  // host that restarts has those of two workers.
  host: { callsPerSec: 500, pollsAtOnce: 40, callsAtOnce: 300 },
  // A runner has 4 polls open and runs at most 32 nodes at once.
  runner: { callsPerSec: 100, pollsAtOnce: 12, callsAtOnce: 100 },
}

const makeRate = (kind: PartyKind) =>
  new RateLimiterMemory({ points: limitsOf[kind].callsPerSec, duration: 1 })

/** Bounds what one party does at this gateway. */
export function makeLimits() {
  const rates: Record<PartyKind, RateLimiterMemory> = { host: makeRate('host'), runner: makeRate('runner') }
  const open = new Map<string, number>()

  return {
    /** Runs the call, unless the party makes too many. Throws CallRefused. */
    async within<T>(party: Party, isPoll: boolean, work: () => Promise<T>): Promise<T> {
      const { pollsAtOnce, callsAtOnce } = limitsOf[party.kind]
      const key = `${nameOf(party)} ${isPoll ? 'polls' : 'calls'}`
      const running = (open.get(key) ?? 0) + 1
      open.set(key, running)
      try {
        if (running > (isPoll ? pollsAtOnce : callsAtOnce) || !(await mayCall(party)))
          throw new CallRefused(status.resourceExhausted, `The ${party.kind} makes too many calls`)
        return await work()
      } finally {
        const left = (open.get(key) ?? 1) - 1
        if (left) open.set(key, left)
        else open.delete(key)
      }
    },
  }

  async function mayCall({ kind, id }: Party): Promise<boolean> {
    return rates[kind].consume(id).then(
      () => true,
      () => false,
    )
  }
}
