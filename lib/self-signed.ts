import 'reflect-metadata' // required by @peculiar/x509, which does not import it
import { KeyObject, randomBytes, webcrypto } from 'node:crypto'
import { SubjectAlternativeNameExtension, X509CertificateGenerator } from '@peculiar/x509'

const algorithm = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' }

/** A certificate that is its own authority, and its private key, PEM. */
export interface SelfSigned {
  certificate: string
  /** Secret. */
  key: string
}

/** A new certificate for those who know it already. */
export async function makeSelfSigned({ name, years }: { name: string; years: number }): Promise<SelfSigned> {
  const keys = await webcrypto.subtle.generateKey(algorithm, true, ['sign', 'verify'])
  const from = new Date()
  const until = new Date(from)
  until.setFullYear(until.getFullYear() + years)
  // Others' clocks may be behind.
  from.setDate(from.getDate() - 1)
  const certificate = await X509CertificateGenerator.createSelfSigned({
    serialNumber: `01${randomBytes(15).toString('hex')}`,
    name: `CN=${name}`,
    notBefore: from,
    notAfter: until,
    keys,
    signingAlgorithm: algorithm,
    extensions: [new SubjectAlternativeNameExtension([{ type: 'dns', value: name }])],
  })
  return {
    certificate: `${certificate.toString('pem').trimEnd()}\n`,
    key: String(KeyObject.from(keys.privateKey).export({ type: 'pkcs8', format: 'pem' })),
  }
}
