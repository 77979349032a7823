import 'reflect-metadata' // required by @peculiar/x509, which does not import it
import { KeyObject, randomBytes, webcrypto } from 'node:crypto'
import { SubjectAlternativeNameExtension, X509CertificateGenerator } from '@peculiar/x509'
import { sealSecret, unsealSecret } from '../secrets.ts'
import { type DatabaseDocument, tlsContext } from './databases.ts'

// The certificate by which clients outside recognize a database. It is its own authority, since engines and drivers ask for
// no public one, and the database has no name that a public authority could prove.

/** Longer than any version of an engine is kept, because clients hold it as their authority. */
const years = 10
const algorithm = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' }

type Tls = Pick<DatabaseDocument, 'tls_certificate' | 'tls_key_sealed'>

/** The name in the certificate, for clients that check names. It is in no name service. */
export const tlsNameOf = (id: string): string => `${id.slice(-12)}.databases.internal`

/** A new certificate and its key, sealed. */
export async function makeTls(id: string): Promise<Tls> {
  const name = tlsNameOf(id)
  const keys = await webcrypto.subtle.generateKey(algorithm, true, ['sign', 'verify'])
  const from = new Date()
  const until = new Date(from)
  until.setFullYear(until.getFullYear() + years)
  const certificate = await X509CertificateGenerator.createSelfSigned({
    serialNumber: `01${randomBytes(15).toString('hex')}`,
    name: `CN=${name}`,
    notBefore: from,
    notAfter: until,
    keys,
    signingAlgorithm: algorithm,
    extensions: [new SubjectAlternativeNameExtension([{ type: 'dns', value: name }])],
  })
  const key = KeyObject.from(keys.privateKey).export({ type: 'pkcs8', format: 'pem' })
  return {
    tls_certificate: `${certificate.toString('pem').trimEnd()}\n`,
    tls_key_sealed: await sealSecret(String(key), tlsContext(id)),
  }
}

/** The private key. Secret. */
export const tlsKeyOf = ({ _id, tls_key_sealed }: Pick<DatabaseDocument, '_id' | 'tls_key_sealed'>) =>
  unsealSecret<string>(tls_key_sealed, tlsContext(_id))
