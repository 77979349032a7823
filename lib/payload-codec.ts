import type { Payload, PayloadCodec } from '@temporalio/common'
import proto from '@temporalio/proto'
import { type KeyRing, seal, unseal } from './seal.ts'

const encoding = 'binary/encrypted'
const context = 'temporal-payload'
const text = new TextEncoder()

/** Encrypts all payloads in Temporal's histories: its database and UI show no tenant data without the key. */
export class EncryptingCodec implements PayloadCodec {
  readonly #ring: KeyRing

  constructor(ring: KeyRing) {
    this.#ring = ring
  }

  async encode(payloads: Payload[]): Promise<Payload[]> {
    return payloads.map((payload) => {
      const plain = proto.temporal.api.common.v1.Payload.encode(payload).finish()
      const { keyId, sealed } = seal(this.#ring, plain, context)
      return { metadata: { encoding: text.encode(encoding), key_id: text.encode(keyId) }, data: sealed }
    })
  }

  async decode(payloads: Payload[]): Promise<Payload[]> {
    return payloads.map((payload) => {
      const { metadata, data } = payload
      if (!metadata?.['encoding'] || Buffer.from(metadata['encoding']).toString() !== encoding) return payload
      const keyId = Buffer.from(metadata['key_id'] ?? []).toString()
      return proto.temporal.api.common.v1.Payload.decode(
        unseal(this.#ring, keyId, data ?? new Uint8Array(), context),
      )
    })
  }
}
