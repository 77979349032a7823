import 'reflect-metadata' // required by @peculiar/x509, which does not import it
import { KeyObject, randomBytes, webcrypto } from 'node:crypto'
import {
  BasicConstraintsExtension,
  SubjectAlternativeNameExtension,
  X509CertificateGenerator,
} from '@peculiar/x509'

// Real certificates, from authorities that live for one test.

/** A certificate and its key, PEM. */
export interface Identity {
  cert: string
  key: string
}

export interface Authority {
  cert: string
  /** Signs a certificate for these host names and IPv4 addresses. */
  issue(names: string[], options?: { from?: Date; until?: Date; key?: KeyKind }): Promise<Identity>
}

const keyKinds = {
  rsa: {
    name: 'RSASSA-PKCS1-v1_5',
    hash: 'SHA-256',
    publicExponent: new Uint8Array([1, 0, 1]),
    modulusLength: 2048,
  },
  'short rsa': {
    name: 'RSASSA-PKCS1-v1_5',
    hash: 'SHA-256',
    publicExponent: new Uint8Array([1, 0, 1]),
    modulusLength: 1024,
  },
  ec: { name: 'ECDSA', hash: 'SHA-256', namedCurve: 'P-256' },
} as const
export type KeyKind = keyof typeof keyKinds

const dayMs = 86_400_000
/** Longer than before an end of which owners are told. */
const validDays = 90
const inDays = (days: number): Date => new Date(Date.now() + days * dayMs)

export async function makeAuthority(name = 'CN=Test CA'): Promise<Authority> {
  const keys = await makeKeys('rsa')
  const root = await X509CertificateGenerator.createSelfSigned({
    ...dated(inDays(-1), inDays(validDays)),
    name,
    keys,
    signingAlgorithm: keyKinds.rsa,
    extensions: [new BasicConstraintsExtension(true, undefined, true)],
  })
  return {
    cert: root.toString('pem'),
    async issue(names, { from = inDays(-1), until = inDays(validDays), key = 'rsa' } = {}) {
      const own = await makeKeys(key)
      const certificate = await X509CertificateGenerator.create({
        ...dated(from, until),
        subject: `CN=${names[0] ?? ''}`,
        issuer: root.subject,
        publicKey: own.publicKey,
        signingKey: keys.privateKey,
        signingAlgorithm: keyKinds.rsa,
        extensions: [
          new SubjectAlternativeNameExtension(
            names.map((value) => ({ type: /^[\d.]+$/.test(value) ? 'ip' : 'dns', value })),
          ),
        ],
      })
      return { cert: certificate.toString('pem'), key: pemOf(own.privateKey) }
    },
  }
}

const dated = (notBefore: Date, notAfter: Date) => ({
  serialNumber: `01${randomBytes(8).toString('hex')}`,
  notBefore,
  notAfter,
})

const makeKeys = (kind: KeyKind): Promise<webcrypto.CryptoKeyPair> =>
  webcrypto.subtle.generateKey(keyKinds[kind], true, ['sign', 'verify'])

const pemOf = (key: webcrypto.CryptoKey): string =>
  KeyObject.from(key).export({ type: 'pkcs8', format: 'pem' }).toString()
