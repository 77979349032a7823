import { createCipheriv, createDecipheriv, createSecretKey, type KeyObject, randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'

/** 256-bit keys by id. `current` seals; all of them open, so that a key can be replaced while old data is about. */
export interface KeyRing {
  current: string
  /** Key objects, since a bare buffer costs twice the time of the sealing itself. */
  keys: ReadonlyMap<string, KeyObject>
}

const nonceBytes = 12 // what AES-GCM is specified for (NIST SP 800-38D, 5.2.1.1)
const tagBytes = 16

/**
 * Reads a key file: one `<key id>:<32 bytes in base64>` a line, the first being the current key; a bare
 * base64 line has the id `1`.
 */
export function readKeyRing(path: string): KeyRing {
  const keys = new Map<string, KeyObject>()
  for (const line of readFileSync(path, 'utf8').split('\n').filter(Boolean)) {
    const [id, encoded] = line.includes(':') ? (line.split(':', 2) as [string, string]) : ['1', line]
    const key = Buffer.from(encoded.trim(), 'base64')
    if (key.length !== 32) throw new Error(`key ${id} in ${path} has ${key.length} bytes instead of 32`)
    keys.set(id, createSecretKey(key))
  }
  const current = keys.keys().next().value
  if (current === undefined) throw new Error(`no key in ${path}`)
  return { current, keys }
}

/**
 * AES-256-GCM. `context` is authenticated with the text, so that a sealed value moved to another place does
 * not open there. Shape of the result: nonce, tag, ciphertext.
 */
export function seal(ring: KeyRing, plain: Uint8Array, context: string): { keyId: string; sealed: Buffer } {
  const nonce = randomBytes(nonceBytes)
  const cipher = createCipheriv('aes-256-gcm', keyOf(ring, ring.current), nonce).setAAD(Buffer.from(context))
  const text = Buffer.concat([cipher.update(plain), cipher.final()])
  return { keyId: ring.current, sealed: Buffer.concat([nonce, cipher.getAuthTag(), text]) }
}

/** Opens what `seal` made. Throws when the key is unknown or anything was changed. */
export function unseal(ring: KeyRing, keyId: string, sealed: Uint8Array, context: string): Buffer {
  const bytes = Buffer.from(sealed.buffer, sealed.byteOffset, sealed.byteLength)
  const decipher = createDecipheriv('aes-256-gcm', keyOf(ring, keyId), bytes.subarray(0, nonceBytes))
  decipher.setAAD(Buffer.from(context)).setAuthTag(bytes.subarray(nonceBytes, nonceBytes + tagBytes))
  return Buffer.concat([decipher.update(bytes.subarray(nonceBytes + tagBytes)), decipher.final()])
}

/** One string that can be stored: `<key id>.<base64url>`. */
export function sealJson(ring: KeyRing, value: unknown, context: string): string {
  const { keyId, sealed } = seal(ring, Buffer.from(JSON.stringify(value)), context)
  return `${keyId}.${sealed.toString('base64url')}`
}

export function unsealJson<T>(ring: KeyRing, stored: string, context: string): T {
  const dot = stored.indexOf('.')
  const plain = unseal(ring, stored.slice(0, dot), Buffer.from(stored.slice(dot + 1), 'base64url'), context)
  return JSON.parse(plain.toString()) as T
}

function keyOf(ring: KeyRing, id: string): KeyObject {
  const key = ring.keys.get(id)
  if (!key) throw new Error(`no key with the id ${id}`)
  return key
}
