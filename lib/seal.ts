import {
  createCipheriv,
  createDecipheriv,
  createSecretKey,
  hkdfSync,
  type KeyObject,
  randomBytes,
} from 'node:crypto'
import { readFileSync, statSync } from 'node:fs'

/** 256-bit keys by id. `current` seals and every key opens, so keys can be rotated while old data exists. */
export interface KeyRing {
  current: string
  /** Key objects: passing a bare buffer doubles the time of sealing. */
  keys: ReadonlyMap<string, KeyObject>
}

const nonceBytes = 12 // what AES-GCM is specified for (NIST SP 800-38D, 5.2.1.1)
const tagBytes = 16

/**
 * Reads a key file with one `<key id>:<32 bytes in base64>` per line; the first is the current key. A bare base64 line
 * has the id `1`. Warns if others than the owner can read the file.
 */
export function readKeyRing(path: string): KeyRing {
  const mode = statSync(path).mode & 0o777
  if (mode & 0o077) {
    process.emitWarning(`${path} holds keys and is open to others (mode ${mode.toString(8)}): chmod 600`)
  }
  return parseKeyRing(readFileSync(path, 'utf8'), path)
}

/** Parses a key file; commas also separate lines. Errors name `source` and the position, never the content. */
export function parseKeyRing(text: string, source: string): KeyRing {
  const lines = text.split(/[\n,]/).map((line) => line.trim())
  const keys = new Map<string, KeyObject>()
  for (const [index, line] of lines.filter(Boolean).entries()) {
    const [, id = '1', key] = /^(?:([\w-]+):)?([A-Za-z0-9+/]{43}=?)$/.exec(line) ?? []
    if (!key) throw new Error(`${source}: key ${index + 1} is not <id>:<32 bytes in base64>`)
    if (keys.has(id)) throw new Error(`${source}: key ${index + 1} has the id of another one`)
    keys.set(id, createSecretKey(Buffer.from(key, 'base64')))
  }
  const current = keys.keys().next().value
  if (current === undefined) throw new Error(`${source}: no key`)
  return { current, keys }
}

/** Keys for one purpose or one reader, made from the ring's (HKDF-SHA-256). They do not lead back to the ring's. */
export function deriveRing(ring: KeyRing, purpose: string): KeyRing {
  const derived = [...ring.keys].map(([id, key]): [string, KeyObject] => [
    id,
    createSecretKey(Buffer.from(hkdfSync('sha256', key, '', purpose, 32))),
  ])
  return { current: ring.current, keys: new Map(derived) }
}

/** The text of a key file, as `parseKeyRing` reads it. */
export const formatKeyRing = ({ keys }: KeyRing): string =>
  [...keys].map(([id, key]) => `${id}:${key.export().toString('base64')}`).join('\n')

/**
 * AES-256-GCM. `context` is authenticated with the text, so a sealed value copied to another place does not open
 * there. Result: nonce, tag, ciphertext.
 */
export function seal(ring: KeyRing, plain: Uint8Array, context: string): { keyId: string; sealed: Buffer } {
  const { keyId, sealed } = sealPieces(ring, [plain], context)
  return { keyId, sealed: Buffer.concat(sealed) }
}

/** The same for bytes that come in pieces, which are not joined: memory of many megabytes is slow to get. */
export function sealPieces(
  ring: KeyRing,
  plain: Uint8Array[],
  context: string,
): { keyId: string; sealed: Buffer[] } {
  const nonce = randomBytes(nonceBytes)
  const cipher = createCipheriv('aes-256-gcm', keyOf(ring, ring.current), nonce).setAAD(Buffer.from(context))
  const text = plain.map((piece) => cipher.update(piece))
  text.push(cipher.final())
  return { keyId: ring.current, sealed: [Buffer.concat([nonce, cipher.getAuthTag()]), ...text] }
}

/** Opens the result of `seal`. Throws if the key is unknown or anything was changed. */
export const unseal = (ring: KeyRing, keyId: string, sealed: Uint8Array, context: string): Buffer =>
  Buffer.concat(unsealPieces(ring, keyId, [sealed], context))

/** The same for bytes in pieces. Only when it returns is it known that nothing was changed. */
export function unsealPieces(ring: KeyRing, keyId: string, sealed: Uint8Array[], context: string): Buffer[] {
  const [head, text] = splitAt(sealed, nonceBytes + tagBytes)
  const decipher = createDecipheriv('aes-256-gcm', keyOf(ring, keyId), head.subarray(0, nonceBytes))
  decipher.setAAD(Buffer.from(context)).setAuthTag(head.subarray(nonceBytes))
  const plain = text.map((piece) => decipher.update(piece))
  return [...plain, decipher.final()]
}

/** The first bytes, and the pieces of the others. */
function splitAt(pieces: Uint8Array[], length: number): [Buffer, Uint8Array[]] {
  let count = 0
  for (let there = 0; there < length && count < pieces.length; count++) there += pieces[count]?.length ?? 0
  const first = Buffer.concat(pieces.slice(0, count))
  return [first.subarray(0, length), [first.subarray(length), ...pieces.slice(count)]]
}

/** Seals into one storable string: `<key id>.<base64url>`. */
export function sealJson(ring: KeyRing, value: unknown, context: string): string {
  const { keyId, sealed } = seal(ring, Buffer.from(JSON.stringify(value)), context)
  return `${keyId}.${sealed.toString('base64url')}`
}

export function unsealJson<T>(ring: KeyRing, stored: string, context: string): T {
  const keyId = keyIdOf(stored)
  const sealed = Buffer.from(stored.slice(keyId.length + 1), 'base64url')
  return JSON.parse(unseal(ring, keyId, sealed, context).toString()) as T
}

/** The id of the key that opens a value from `sealJson`. */
export const keyIdOf = (stored: string): string => stored.slice(0, Math.max(0, stored.indexOf('.')))

function keyOf(ring: KeyRing, id: string): KeyObject {
  const key = ring.keys.get(id)
  if (!key) throw new Error(`no key with the id ${id}`)
  return key
}
