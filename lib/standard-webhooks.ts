import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto'

// Signatures in the Standard Webhooks form, which that project's libraries make and check.

const prefix = 'whsec_'
/** How far the time of a webhook may be from now: a captured one cannot be sent later. */
const toleranceSec = 300

/** 192 random bits, as that specification recommends. */
export const newWebhookSecret = (): string => prefix + randomBytes(24).toString('base64')

/** The headers of one attempt. With several secrets, a receiver accepts the signature by the one that it has. */
export function webhookHeaders(
  secrets: string[],
  { id, time, body }: { id: string; time: Date; body: string },
): Record<string, string> {
  const timestamp = String(Math.floor(time.getTime() / 1000))
  return {
    'webhook-id': id,
    'webhook-timestamp': timestamp,
    'webhook-signature': secrets.map((secret) => sign(secret, id, timestamp, body)).join(' '),
  }
}

/** A webhook that was signed by one of the secrets, and is not older or newer than 5 minutes. */
export interface VerifiedWebhook {
  /** The sender's: the same in each attempt. */
  id: string
  time: Date
}

/**
 * Checks a webhook that has arrived. Null: it is not to be trusted. `headers`: with names in lower case. `rawBody`: the bytes as
 * they came, since JSON that is parsed and written again may differ.
 */
export function verifyWebhook(
  secrets: readonly string[],
  headers: Record<string, string | string[] | undefined>,
  rawBody: Uint8Array,
  now: Date,
): VerifiedWebhook | null {
  const id = headers['webhook-id']
  const timestamp = headers['webhook-timestamp']
  const signatures = headers['webhook-signature']
  // A full stop in the id would let one signed text be read as another id, time and body.
  if (typeof id !== 'string' || !/^[!-\-/-~]{1,256}$/.test(id)) return null
  if (typeof timestamp !== 'string' || !/^\d{1,12}$/.test(timestamp)) return null
  if (typeof signatures !== 'string') return null
  const given = signatures.split(' ').map((one) => Buffer.from(one))
  // All are compared, and each in constant time: how long it takes says nothing of a signature that would match.
  const matches = secrets.flatMap((secret) => {
    const expected = Buffer.from(sign(secret, id, timestamp, rawBody))
    return given.filter((one) => one.length === expected.length && timingSafeEqual(one, expected))
  })
  const time = new Date(Number(timestamp) * 1000)
  const isNear = Math.abs(Math.floor(now.getTime() / 1000) - Number(timestamp)) <= toleranceSec
  return matches.length > 0 && isNear ? { id, time } : null
}

function sign(secret: string, id: string, timestamp: string, body: string | Uint8Array): string {
  const key = Buffer.from(secret.slice(prefix.length), 'base64')
  return `v1,${createHmac('sha256', key).update(`${id}.${timestamp}.`).update(body).digest('base64')}`
}
