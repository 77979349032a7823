import { AddressNotAllowed, NoAnswer, type OutboundAnswer } from '../../lib/outbound.ts'
import { outbound } from '../outbound.ts'
import { type Account, providerOf } from './catalogue.ts'
import type { ConnectorDocument } from './connectors.ts'
import { type ConnectorSecret, headersFor } from './credentials.ts'
import { CredentialRefused } from './problems.ts'
import { addressRefused } from './protocol.ts'

// Asks a provider whether a credential works, and whose it is.

type Place = Pick<ConnectorDocument, 'provider' | 'kind' | 'base_url' | 'key_header' | 'api_version'>

export interface Checked {
  status: 'active' | 'unchecked'
  status_reason: string | null
  account: Account | null
  checked_at: Date | null
}

// Somebody waits for the answer.
const withinMs = 10_000
const mostBytes = 256 * 1024

/**
 * Asks the provider. Without a usable answer the credential is `unchecked`. Throws CredentialRefused, and
 * `address_not_allowed`.
 */
export async function checkCredential(place: Place, secret: ConnectorSecret | null): Promise<Checked> {
  const { title, health, refuses, account } = providerOf(place.provider)
  if (health === null) return { status: 'active', status_reason: null, account: null, checked_at: new Date() }
  const url = place.base_url + health.replace('{api_version}', encodeURIComponent(place.api_version ?? ''))
  const answer = await ask(url, headersFor(place, secret), title)
  if (typeof answer === 'string') return unchecked(`${title}: ${answer}`)
  if (refuses.includes(answer.status)) throw new CredentialRefused(title)
  if (answer.status < 200 || answer.status > 299) return unchecked(`${title} answers ${answer.status}`)
  return {
    status: 'active',
    status_reason: null,
    account: account ? accountIn(answer.body, account) : null,
    checked_at: new Date(),
  }
}

const unchecked = (status_reason: string): Checked => ({
  status: 'unchecked',
  status_reason,
  account: null,
  checked_at: null,
})

/** The answer, or why there is none. */
async function ask(
  url: string,
  headers: Record<string, string>,
  title: string,
): Promise<OutboundAnswer | string> {
  try {
    return await outbound().fetch(url, {
      method: 'GET',
      headers: { accept: 'application/json', 'user-agent': 'Keelson', ...headers },
      withinMs,
      mostBytes,
    })
  } catch (error) {
    if (error instanceof NoAnswer) return error.message
    if (error instanceof AddressNotAllowed) throw addressRefused(title)
    throw error
  }
}

const longest = 200

function accountIn(body: Buffer, { id, login }: Account): Account | null {
  try {
    const said = JSON.parse(body.toString()) as Record<string, unknown>
    const text = (value: unknown): string | null =>
      typeof value === 'string' || typeof value === 'number' ? String(value).slice(0, longest) : null
    const [itsId, itsLogin] = [text(said[id]), text(said[login])]
    return itsId === null || itsLogin === null ? null : { id: itsId, login: itsLogin }
  } catch {
    return null
  }
}
