import { createHmac, randomBytes } from 'node:crypto'

// Signatures in the Standard Webhooks form, which receivers check with that project's libraries.

const prefix = 'whsec_'

/** 192 random bits, as that specification recommends. */
export const newWebhookSecret = (): string => prefix + randomBytes(24).toString('base64')

/** The headers of one attempt. With several secrets, a receiver accepts the signature by the one that it has. */
export function webhookHeaders(
  secrets: string[],
  { id, time, body }: { id: string; time: Date; body: string },
): Record<string, string> {
  const timestamp = Math.floor(time.getTime() / 1000)
  const sign = (secret: string): string => {
    const key = Buffer.from(secret.slice(prefix.length), 'base64')
    return `v1,${createHmac('sha256', key).update(`${id}.${timestamp}.${body}`).digest('base64')}`
  }
  return {
    'webhook-id': id,
    'webhook-timestamp': String(timestamp),
    'webhook-signature': secrets.map(sign).join(' '),
  }
}
