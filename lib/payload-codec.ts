import type { Payload, PayloadCodec, SerializationContext } from '@temporalio/common'
import proto from '@temporalio/proto'
import type { Party } from './parties.ts'
import { deriveRing, type KeyRing, seal, unseal } from './seal.ts'

const encoding = 'binary/encrypted'
const text = new TextEncoder()

/** A payload that is not ours, was changed, or belongs to another workflow. */
export class PayloadRefused extends Error {
  override readonly name = 'PayloadRefused'
}

/** The keys of a codec. `renew` gets them again, when a payload names a key that is not among them. */
export interface CodecKeys {
  ring: KeyRing
  renew?: () => Promise<KeyRing>
}

/**
 * Encrypts all payloads in Temporal's histories: its database and UI show no tenant data without the key. Each payload
 * is bound to its workflow, and decodes in no other. Throws PayloadRefused for any payload that is not ours: an
 * attacker who reaches Temporal without the key can give no workflow and no activity an input.
 *
 * The SDK does not pass search attributes, headers and its own markers through codecs. Temporal's server adds two words of
 * its own, which are let through: anyone who reaches Temporal could cause the same by a cancel.
 */
export class EncryptingCodec implements PayloadCodec {
  readonly #keys: CodecKeys

  constructor(keys: CodecKeys) {
    this.#keys = keys
  }

  async encode(payloads: Payload[], context?: SerializationContext): Promise<Payload[]> {
    const workflow = workflowOf(context)
    return payloads.map((payload) => {
      const plain = proto.temporal.api.common.v1.Payload.encode(payload).finish()
      const { keyId, sealed } = seal(this.#keys.ring, plain, boundTo(workflow))
      const metadata = { encoding, key_id: keyId, workflow_id: workflow }
      return {
        metadata: Object.fromEntries(
          Object.entries(metadata).map(([name, value]) => [name, text.encode(value)]),
        ),
        data: sealed,
      }
    })
  }

  async decode(payloads: Payload[], context?: SerializationContext): Promise<Payload[]> {
    const workflow = workflowOf(context)
    const { renew } = this.#keys
    if (renew && payloads.some((payload) => !this.#keys.ring.keys.has(field(payload, 'key_id'))))
      this.#keys.ring = await renew()
    return payloads.map((payload) => {
      if (isTemporals(payload)) return payload
      if (!isSealed(payload)) throw new PayloadRefused('The payload is not encrypted by this platform')
      if (field(payload, 'workflow_id') !== workflow)
        throw new PayloadRefused('The payload belongs to another workflow')
      return open(this.#keys.ring, payload)
    })
  }

  /** For operators' eyes: decodes what is ours, of any workflow, and leaves the rest as it is. */
  show(payloads: Payload[]): Payload[] {
    return payloads.map((payload) => (isSealed(payload) ? open(this.#keys.ring, payload) : payload))
  }
}

/** The keys that seal payloads for one party alone. */
export const partyRing = (ring: KeyRing, { kind, id }: Party): KeyRing =>
  deriveRing(ring, `${kind} payloads ${id}`)

const boundTo = (workflow: string): string => `temporal-payload:${workflow}`

const field = ({ metadata }: Payload, name: string): string => Buffer.from(metadata?.[name] ?? []).toString()

const isSealed = (payload: Payload): boolean => field(payload, 'encoding') === encoding

/** What Temporal's server itself says of an activity that was cancelled before a worker had it. */
const ofTemporal = new Set(['"ACTIVITY_ID_NOT_STARTED"', '"ACTIVITY_ID_UNKNOWN"'])
const isTemporals = (payload: Payload): boolean =>
  field(payload, 'encoding') === 'json/plain' && ofTemporal.has(Buffer.from(payload.data ?? []).toString())

function open(ring: KeyRing, payload: Payload): Payload {
  try {
    const keyId = field(payload, 'key_id')
    const plain = unseal(
      ring,
      keyId,
      payload.data ?? new Uint8Array(),
      boundTo(field(payload, 'workflow_id')),
    )
    return proto.temporal.api.common.v1.Payload.decode(plain)
  } catch (cause) {
    throw new PayloadRefused('The payload cannot be decrypted', { cause })
  }
}

/** A schedule adds its time to the id of each workflow, and hands each the result of the one before. */
const scheduledAt = /-\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/

function workflowOf(context: SerializationContext | undefined): string {
  if (!context?.workflowId) throw new PayloadRefused('The payload belongs to no workflow')
  return context.workflowId.replace(scheduledAt, '')
}
