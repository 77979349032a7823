import { createHash, generateKeyPairSync } from 'node:crypto'

// The keys of the tunnel between hosts, as WireGuard writes them, and the addresses that follow from them.

export interface TunnelKeys {
  public_key: string
  private_key: string
}

/** 32 bytes in base64: the last digit before the padding has four bits. */
export const tunnelKeyForm = /^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$/

export function newTunnelKeys(): TunnelKeys {
  const { d = '', x = '' } = generateKeyPairSync('x25519').privateKey.export({ format: 'jwk' })
  const [private_key = '', public_key = ''] = [d, x].map((part) =>
    Buffer.from(part, 'base64url').toString('base64'),
  )
  return { public_key, private_key }
}

/**
 * A host's address in the tunnel: a unique local IPv6 address made of 120 bits of its key's hash. It needs no allocation
 * and collides with nothing, and who has an address has its key: WireGuard takes packets from it by that key alone.
 */
export function tunnelAddress(publicKey: string): string {
  const bytes = createHash('sha256').update(publicKey).digest().subarray(0, 15)
  const groups = `fd${bytes.toString('hex')}`.match(/.{4}/g) ?? []
  // In the kernel's spelling: it is compared with what `ip` and `bridge` show.
  return new URL(`http://[${groups.join(':')}]`).hostname.slice(1, -1)
}
