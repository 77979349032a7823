import { readFileSync } from 'node:fs'
import { Agent } from 'node:https'
import { rootCertificates } from 'node:tls'
import { type Authorization, axios, Client, crypto, type Order } from 'acme-client'
import type { AuthorityAccount, CertificateAuthority, HttpChallenge } from '../certificate-authorities.ts'
import { AuthorityRefused } from '../errors.ts'
import { toError, toFault } from './faults.ts'

interface AcmeSettings {
  directory: string
  /** An e-mail address. */
  contact: string | null
  /** A file with the authorities that its TLS certificate may come from, in PEM; null: those that Node trusts. */
  caFile: string | null
}

// An answer takes a second or two. The caller repeats a call that failed.
const requestMs = 20_000

/** Only one per process: the library keeps its HTTP settings for the process. */
export function openAuthority({ directory, contact, caFile }: AcmeSettings): CertificateAuthority {
  useHttp(new URL(directory).origin, caFile)

  const clientOf = ({ url, key }: AuthorityAccount): Client =>
    new Client({ directoryUrl: directory, accountKey: key, accountUrl: url })

  return {
    directory,

    register: (key) =>
      toFault(async () => {
        const client = new Client({ directoryUrl: directory, accountKey: key })
        const contacts = contact === null ? {} : { contact: [`mailto:${contact}`] }
        try {
          await client.createAccount({ termsOfServiceAgreed: true, ...contacts })
        } catch (error) {
          // The library updates an account that the key has already, and authorities refuse an update of nothing.
          if (!isRegistered(client)) throw error
        }
        return client.getAccountUrl()
      }),

    order: (account, domains) =>
      toFault(async () => {
        const identifiers = domains.map((value) => ({ type: 'dns', value }))
        const { url } = await clientOf(account).createOrder({ identifiers })
        return url
      }),

    challenges: (account, url) =>
      toFault(async () => {
        const client = clientOf(account)
        const { open } = await look(client, url)
        const made: HttpChallenge[] = []
        for (const authorization of open) {
          const challenge = httpOf(authorization)
          const key_authorization = await client.getChallengeKeyAuthorization(challenge)
          made.push({ domain: authorization.identifier.value, token: challenge.token, key_authorization })
        }
        return made
      }),

    prove: (account, url) =>
      toFault(async () => {
        const client = clientOf(account)
        const { open } = await look(client, url)
        for (const authorization of open) {
          const challenge = httpOf(authorization)
          if (challenge.status === 'pending') await client.completeChallenge(challenge)
        }
        return open.length === 0
      }),

    issue: (account, url, key, domains) =>
      toFault(async () => {
        const client = clientOf(account)
        const { order } = await look(client, url)
        if (order.status === 'valid') return client.getCertificate(order)
        if (order.status === 'ready') {
          const [, request] = await crypto.createCsr({ altNames: domains }, key)
          await client.finalizeOrder(order, request)
        }
        return null
      }),
  }
}

function isRegistered(client: Client): boolean {
  try {
    return Boolean(client.getAccountUrl())
  } catch {
    return false
  }
}

/** The order, and what of it is not proven yet. Throws AuthorityRefused if a proof failed. */
async function look(client: Client, url: string): Promise<{ order: Order; open: Authorization[] }> {
  const order = await client.getOrder({ url } as Order)
  const all = await client.getAuthorizations(order)
  for (const one of all) if (one.status !== 'pending' && one.status !== 'valid') throw refusalOf(one)
  if (order.status === 'invalid') throw new AuthorityRefused(`The order failed: ${detailOf(order.error)}`)
  return { order, open: all.filter(({ status }) => status === 'pending') }
}

function httpOf(authorization: Authorization) {
  const challenge = authorization.challenges.find(({ type }) => type === 'http-01')
  const name = authorization.identifier.value
  if (!challenge) throw new AuthorityRefused(`${name}: the authority offers no HTTP-01 challenge`)
  // The token becomes a path of the load balancers.
  if (!/^[\w-]{1,256}$/.test(challenge.token))
    throw new AuthorityRefused(`${name}: the token of the challenge is not valid`)
  return challenge
}

function refusalOf({ identifier, status, challenges }: Authorization): AuthorityRefused {
  const failed = challenges.find((one) => 'error' in one && one.error)
  const detail = failed && 'error' in failed ? detailOf(failed.error) : `the authorization is ${status}`
  return new AuthorityRefused(`${identifier.value}: ${detail}`)
}

const detailOf = (error: unknown): string =>
  typeof error === 'object' && error !== null && 'detail' in error ? String(error.detail) : 'without a reason'

/** Requests go to the directory's origin alone, whatever URLs its answers contain. */
function useHttp(origin: string, caFile: string | null): void {
  const settings = axios.defaults as typeof axios.defaults & { acmeSettings: { retryMaxAttempts: number } }
  settings.acmeSettings.retryMaxAttempts = 0
  Object.assign(axios.defaults, { timeout: requestMs, maxRedirects: 0, maxContentLength: 1024 * 1024 })
  axios.interceptors.request.use((config) => {
    if (new URL(config.url ?? '').origin !== origin)
      throw new AuthorityRefused('The authority refers to a server other than that of its directory')
    // Read each time: the file may be replaced.
    if (caFile !== null)
      config.httpsAgent = new Agent({ ca: [...rootCertificates, readFileSync(caFile, 'utf8')] })
    return config
  })
  axios.interceptors.response.use((response) => {
    const error = toError(response)
    if (error) throw error
    return response
  })
}
