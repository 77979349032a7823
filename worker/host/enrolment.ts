import { mkdir, open, readFile, rename } from 'node:fs/promises'
import { join } from 'node:path'
import { type CryptoKey, exportJWK, generateKeyPair, importJWK, type JWK } from 'jose'
import { z } from 'zod'
import { Enrolled, PublicKey } from '../../lib/host-protocol.ts'
import type { SelfSigned } from '../../lib/self-signed.ts'
import { newTunnelKeys } from '../../drivers/linux/tunnel-keys.ts'

/** A host's identity. */
export interface Credential {
  hostId: string
  /** The host's private key. It never leaves the state folder. */
  key: CryptoKey | Uint8Array
  /** The API's public keys at enrolment. Each report returns the present ones. */
  jwks: Enrolled['jwks']
}

/**
 * Reads the credential from the state folder, or enrols. The key is saved before it is sent, so a host killed at any
 * point retries with the same identity.
 */
export async function enrolled(
  folder: string,
  ask: (key: PublicKey) => Promise<Enrolled>,
): Promise<Credential> {
  await mkdir(folder, { recursive: true, mode: 0o700 })
  const jwk = await kept(join(folder, 'key.json'), PrivateKey, newKey)
  const { host_id, jwks } = await kept(join(folder, 'host.json'), Enrolled, () =>
    ask(PublicKey.strip().parse(jwk)),
  )
  return { hostId: host_id, key: await importJWK(jwk, 'EdDSA'), jwks }
}

// Its files are replaced by removing them; it should not end before.
const certificateYears = 100
const Identity = z.object({ certificate: z.string(), key: z.string() })

/** Reads the certificate of the data plane and its key from the state folder, or makes them. */
export async function planeIdentity(folder: string): Promise<SelfSigned> {
  await mkdir(folder, { recursive: true, mode: 0o700 })
  return kept(join(folder, 'data-plane.json'), Identity, async () => {
    // Loaded when it is needed, once in a host's life: the library would add to the memory of every host.
    const { makeSelfSigned } = await import('../../lib/self-signed.ts')
    return makeSelfSigned({ name: 'host.keelson.internal', years: certificateYears })
  })
}

const TunnelKeys = z.object({ public_key: z.string(), private_key: z.string() })

/** Reads the keys of the host's tunnel from the state folder, or makes them. */
export async function tunnelKeys(folder: string): Promise<z.infer<typeof TunnelKeys>> {
  await mkdir(folder, { recursive: true, mode: 0o700 })
  return kept(join(folder, 'tunnel.json'), TunnelKeys, async () => newTunnelKeys())
}

const PrivateKey = z.looseObject({ ...PublicKey.shape, d: z.string() })

async function newKey(): Promise<JWK> {
  const { privateKey } = await generateKeyPair('EdDSA', { crv: 'Ed25519', extractable: true })
  return exportJWK(privateKey)
}

/** Reads the file. If it is missing, saves and returns the result of `make`. */
async function kept<S extends z.ZodType>(
  path: string,
  schema: S,
  make: () => Promise<unknown>,
): Promise<z.infer<S>> {
  const text = await readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return null
    throw error
  })
  if (text !== null) return schema.parse(JSON.parse(text))
  const made = schema.parse(await make())
  const unfinished = `${path}.new`
  const file = await open(unfinished, 'w', 0o600)
  try {
    await file.writeFile(JSON.stringify(made))
    await file.sync() // before the rename: a power cut could otherwise leave an empty file
  } finally {
    await file.close()
  }
  await rename(unfinished, path)
  return made
}
