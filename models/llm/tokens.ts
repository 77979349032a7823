import { errors, type JWTPayload, SignJWT } from 'jose'
import { newId } from '../../lib/ids.ts'
import { NotFound, Unauthenticated } from '../../lib/problem.ts'
import { providerNames, providerOf } from '../connectors/catalogue.ts'
import { Connector } from '../connectors/connectors.ts'
import { ConnectorRequired } from '../connectors/problems.ts'
import { sign } from '../identity/signing-keys.ts'
import { makeVerifier } from '../identity/verified-tokens.ts'
import { type Budget, openLedger } from './ledgers.ts'
import { dropOrphans } from './lost-calls.ts'
import { ownProvider } from './own-models.ts'
import { type Purpose, purposeKinds } from './purposes.ts'

// What a sandbox has instead of a provider's key: it opens the model gateway alone, for one purpose and one connector.

/** The `typ` header, which keeps these tokens and the platform's others from passing as each other. */
const tokenType = 'llm+jwt'
const names = { issuer: 'keelson', audience: 'keelson-models' }
const usualSec = 900
/** The signing keys stay published for two hours after their replacement. */
const longestSec = 3_600

/** Another connector of the tenant, and the model there, for calls that the first does not take. */
export interface Fallback {
  connector_id: string
  /** Without it, the model that the caller asked for. */
  model?: string
}

/** What the holder of a token may do. */
export interface Grant {
  tenant_id: string
  purpose: Purpose
  /** Null: the models that the platform runs itself, which have no fallbacks. */
  connector_id: string | null
  /** In this order. All speak the API of the first. */
  fallbacks: Fallback[]
}

/** As a token says it. */
export interface IssuedGrant extends Grant {
  /** Of the connector, so that a call's record need not wait for it. */
  provider: string
}

/**
 * Issues a token for a purpose, and opens its ledger with this budget (a number: of tokens; null: none but the tenant's
 * limit). Its owner issues another before it ends. Throws NotFound for a connector that is not the tenant's,
 * ConnectorRequired for one without models, and StateConflict if the purpose's ledger is closed.
 */
export async function issueToken(
  { tenant_id, purpose, connector_id, fallbacks }: Grant,
  budget: Budget | number | null,
  forSec = usualSec,
): Promise<{ token: string; expires_at: Date }> {
  const others = fallbacks.map((fallback) => fallback.connector_id)
  const [provider] =
    connector_id === null ? [ownProvider] : await needModels(tenant_id, [connector_id, ...others])
  const all = typeof budget === 'object' && budget !== null ? budget : { tokens: budget, nano_usd: null }
  await Promise.all([openLedger(tenant_id, purpose, all), dropOrphans(tenant_id, purpose)])
  const seconds = Math.min(forSec, longestSec)
  const expires_at = new Date((Math.floor(Date.now() / 1000) + seconds) * 1000)
  const claims = { tenant_id, purpose: purpose.kind, connector_id, provider, fallbacks }
  const token = new SignJWT(claims)
    .setIssuer(names.issuer)
    .setAudience(names.audience)
    .setSubject(purpose.id)
    .setJti(newId())
    .setIssuedAt()
    .setExpirationTime(expires_at)
  return { token: await sign(token, tokenType), expires_at }
}

const withModels = providerNames.filter((name) => providerOf(name).serves === 'models')

/** The connectors' providers. */
async function needModels(tenant_id: string, ids: string[]): Promise<string[]> {
  const found = await Connector.find({ tenant_id, _id: { $in: ids } }, { provider: 1 }).lean()
  return ids.map((id) => {
    const connector = found.find(({ _id }) => _id === id)
    if (!connector) throw new NotFound('connector')
    if (!withModels.includes(connector.provider)) throw new ConnectorRequired(withModels)
    return connector.provider
  })
}

const verify = makeVerifier({
  typ: tokenType,
  requiredClaims: ['sub', 'tenant_id', 'purpose', 'connector_id', 'provider', 'fallbacks', 'iat', 'exp'],
  maxTokenAge: longestSec,
})

/** What a token grants. Throws Unauthenticated if it is not ours or has expired, and what the database throws. */
export async function grantOf(token: string): Promise<IssuedGrant> {
  let claims: JWTPayload
  try {
    claims = await verify(token, names)
  } catch (error) {
    if (!isOfToken(error)) throw error
    throw new Unauthenticated('The token is unknown or has expired')
  }
  const kind = purposeKinds.find((one) => one === claims['purpose'])
  if (!kind) throw new Unauthenticated('The gateway does not know the purpose of the token')
  return {
    tenant_id: String(claims['tenant_id']),
    purpose: { kind, id: String(claims.sub) },
    connector_id: claims['connector_id'] as string | null,
    provider: String(claims['provider']),
    fallbacks: claims['fallbacks'] as Fallback[],
  }
}

/** Whether jose refused a token; otherwise the keys could not be read. */
const isOfToken = (error: unknown): boolean => error instanceof errors.JOSEError
