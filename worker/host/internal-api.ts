import { SignJWT } from 'jose'
import { z } from 'zod'
import {
  Enrolled,
  type Enrolment,
  type HostReport,
  hostTokenType,
  internalAudience,
  ReportAnswer,
} from '../../lib/host-protocol.ts'
import type { Credential } from './enrolment.ts'

const answersWithinMs = 10_000
const tokenSec = 60

/** The API refused (`status`), or did not answer (no status). */
export class InternalApiFault extends Error {
  override readonly name = 'InternalApiFault'
  readonly code: string
  readonly permanent: boolean
  readonly status: number | null

  constructor(status: number | null, code: string, message: string, cause?: unknown) {
    super(message, { cause })
    this.status = status
    this.code = code
    // 401 may be a clock that is off, which somebody will put right.
    this.permanent = status !== null && status < 500 && ![401, 408, 429].includes(status)
  }
}

/** Asks to become a host. May be repeated with the same token and key. Throws InternalApiFault. */
export const enrol = (apiUrl: string, enrolment: Enrolment): Promise<Enrolled> =>
  call(new URL('/internal/v1/hosts/enrol', apiUrl), Enrolled, post(enrolment))

export type InternalApi = ReturnType<typeof makeInternalApi>

/** What a host asks of the API, in its own name. All throw InternalApiFault. */
export function makeInternalApi(apiUrl: string, { hostId, key }: Pick<Credential, 'hostId' | 'key'>) {
  const at = (path: string): URL => new URL(`/internal/v1/hosts/${hostId}/${path}`, apiUrl)

  const token = (): Promise<string> =>
    new SignJWT()
      .setProtectedHeader({ alg: 'EdDSA', typ: hostTokenType })
      .setIssuer(hostId)
      .setSubject(hostId)
      .setAudience(internalAudience)
      .setIssuedAt()
      .setExpirationTime(`${tokenSec} s`)
      .sign(key)

  return {
    report: async (report: HostReport): Promise<ReportAnswer> =>
      call(at('reports'), ReportAnswer, post(report), await token()),

    configVars: async (instanceId: string): Promise<Record<string, string>> => {
      const path = `instances/${encodeURIComponent(instanceId)}/config-vars`
      return (await call(at(path), ConfigVars, {}, await token())).config_vars
    },
  }
}

const ConfigVars = z.object({ config_vars: z.record(z.string(), z.string()) })
const Refusal = z.object({ code: z.string(), title: z.string() })

const post = (body: unknown): RequestInit => ({
  method: 'POST',
  headers: { 'content-type': 'application/json' },
  body: JSON.stringify(body),
})

async function call<S extends z.ZodType>(
  url: URL,
  schema: S,
  init: RequestInit,
  token?: string,
): Promise<z.infer<S>> {
  const headers = new Headers(init.headers)
  if (token) headers.set('authorization', `Bearer ${token}`)
  const signal = AbortSignal.timeout(answersWithinMs)
  const away = (cause: unknown): never => {
    throw new InternalApiFault(null, 'platform_unavailable', 'The platform’s API does not answer', cause)
  }
  const response = await fetch(url, { ...init, headers, signal }).catch(away)
  const body: unknown = await response.json().catch(away)
  if (response.ok) return schema.parse(body)
  const refusal = Refusal.catch({ code: 'refused', title: response.statusText }).parse(body)
  throw new InternalApiFault(response.status, refusal.code, `The platform’s API refused: ${refusal.title}`)
}
