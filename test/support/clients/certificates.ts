import { newId } from '../../../lib/ids.ts'
import type { Json } from './ask.ts'
import type { Accepted, Caller } from './caller.ts'

/** The fields of a certificate that tests read from the API. */
export interface CertificateBody extends Json {
  id: string
  status: string
  status_reason: string | null
  operation_id: string | null
  fingerprint: string | null
  not_before: string | null
  not_after: string | null
  renews_at: string | null
  days_left: number | null
}

const at = (id: string): string => `/api/v1/certificates/${id}`

export const certificatesOf = (caller: Caller) => ({
  /** By ACME. */
  order: (...domains: string[]): Promise<Accepted> =>
    caller.begin('POST', '/api/v1/certificates', { name: `cert-${newId().slice(-12)}`, domains }),
  get: (id: string) => caller.get<CertificateBody>(at(id)),
  renew: (id: string) => caller.begin('POST', `${at(id)}/renew`),
  delete: (id: string) => caller.begin('DELETE', at(id)),
  activity: async (id: string) => (await caller.get<{ items: Json[] }>(`${at(id)}/activity`)).items,
})
