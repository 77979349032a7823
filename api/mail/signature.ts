import { type KeyObject, verify, X509Certificate } from 'node:crypto'
import { Unavailable } from '../../lib/problem.ts'
import type { SnsMessage } from './messages.ts'
import type { PinnedHost } from './pinned-host.ts'

// Follows “Verifying the signatures of Amazon SNS messages” in the SNS Developer Guide. Neither of the two packages for
// this limits what it reads and caches, accepts a CA for one host, or checks the certificate's dates.

const signedFields = {
  Notification: ['Message', 'MessageId', 'Subject', 'Timestamp', 'TopicArn', 'Type'],
  SubscriptionConfirmation: [
    'Message',
    'MessageId',
    'SubscribeURL',
    'Timestamp',
    'Token',
    'TopicArn',
    'Type',
  ],
  UnsubscribeConfirmation: ['Message', 'MessageId', 'SubscribeURL', 'Timestamp', 'Token', 'TopicArn', 'Type'],
} as const
const algorithms = { 1: 'RSA-SHA1', 2: 'RSA-SHA256' } as const

/** The text that the sender signs: each field's name and value on separate lines. */
export function signedText(message: SnsMessage): string {
  const fields: Record<string, string | undefined> = message
  const present = signedFields[message.Type].filter((name) => fields[name] !== undefined)
  return present.map((name) => `${name}\n${fields[name]}\n`).join('')
}

interface KnownKey {
  key: KeyObject
  validUntil: number
}

// SNS uses one certificate at a time, and changes it about once a year.
const mostKept = 8
const mostAtOnce = 4
const leastBits = 2048

/**
 * Makes the function that checks signatures with this host's certificates, which it caches while they are valid. It
 * returns whether a signature is valid, and throws Unavailable if the certificate cannot be fetched now.
 */
export function makeSignatureCheck(host: PinnedHost): (message: SnsMessage) => Promise<boolean> {
  const kept = new Map<string, KnownKey>()
  const asked = new Map<string, Promise<KnownKey | null>>()

  return async (message) => {
    const url = certificateUrl(message.SigningCertURL, host)
    const known = url && (await keyAt(url))
    if (!known) return false
    const signature = Buffer.from(message.Signature, 'base64')
    return verify(
      algorithms[message.SignatureVersion],
      Buffer.from(signedText(message)),
      known.key,
      signature,
    )
  }

  async function keyAt(url: URL): Promise<KnownKey | null> {
    const known = kept.get(url.href)
    if (known && known.validUntil > Date.now()) return known
    kept.delete(url.href)
    const reading = asked.get(url.href)
    if (reading) return reading
    // Anybody can send URLs of certificates that do not exist.
    if (asked.size >= mostAtOnce) throw new Unavailable('Too many signing certificates are being fetched')
    const begun = readKey(url).finally(() => asked.delete(url.href))
    asked.set(url.href, begun)
    return begun
  }

  async function readKey(url: URL): Promise<KnownKey | null> {
    const pem = await host.read(url)
    const known = pem === null ? null : keyOf(pem)
    if (!known) return null
    const [oldest] = kept.keys()
    if (kept.size >= mostKept && oldest !== undefined) kept.delete(oldest)
    kept.set(url.href, known)
    return known
  }
}

function certificateUrl(text: string, host: PinnedHost): URL | null {
  const url = host.urlOf(text)
  return url && /^\/[\w./-]+\.pem$/.test(url.pathname) && !url.search && !url.hash ? url : null
}

/** The key of a currently valid certificate; else null. The owner is not checked: the pinned host vouches for it. */
function keyOf(pem: string): KnownKey | null {
  let certificate: X509Certificate
  try {
    certificate = new X509Certificate(pem)
  } catch {
    return null
  }
  const { publicKey: key, validFromDate, validToDate } = certificate
  const validUntil = validToDate.getTime()
  const isValid = validFromDate.getTime() <= Date.now() && Date.now() < validUntil
  const isStrong =
    key.asymmetricKeyType === 'rsa' && (key.asymmetricKeyDetails?.modulusLength ?? 0) >= leastBits
  return isValid && isStrong ? { key, validUntil } : null
}
