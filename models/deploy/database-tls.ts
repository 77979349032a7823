import { makeSelfSigned } from '../../lib/self-signed.ts'
import { sealSecret, unsealSecret } from '../secrets.ts'
import { type DatabaseDocument, tlsContext } from './databases.ts'

// The certificate by which clients outside recognize a database. It is its own authority, since engines and drivers ask for
// no public one, and the database has no name that a public authority could prove.

/** Longer than any version of an engine is kept, because clients hold it as their authority. */
const years = 10

type Tls = Pick<DatabaseDocument, 'tls_certificate' | 'tls_key_sealed'>

/** The name in the certificate, for clients that check names. It is in no name service. */
export const tlsNameOf = (id: string): string => `${id.slice(-12)}.databases.internal`

/** A new certificate and its key, sealed. */
export async function makeTls(id: string): Promise<Tls> {
  const { certificate, key } = await makeSelfSigned({ name: tlsNameOf(id), years })
  return { tls_certificate: certificate, tls_key_sealed: await sealSecret(key, tlsContext(id)) }
}

/** The private key. Secret. */
export const tlsKeyOf = ({ _id, tls_key_sealed }: Pick<DatabaseDocument, '_id' | 'tls_key_sealed'>) =>
  unsealSecret<string>(tls_key_sealed, tlsContext(_id))
