import { newId } from '../../lib/ids.ts'
import type { Authority } from './certificates.ts'
import type { Answer } from './client.ts'
import type { TestTenant } from './tenants.ts'

const unique = (kind: string): string => `${kind}-${newId().slice(-12)}`

/** Uploads certificates and CA trusts of a tenant. */
export function uploadsOf({ owner }: TestTenant, authority: Authority) {
  const uploads = {
    send: (certificate_pem: string, private_key_pem: string): Promise<Answer> =>
      owner.ask('POST', '/api/v1/certificates', { name: unique('cert'), certificate_pem, private_key_pem }),
    trust: (certificates_pem: string): Promise<Answer> =>
      owner.ask('POST', '/api/v1/ca-trusts', { name: unique('trust'), certificates_pem }),
    /** A certificate that the authority issues for these names. */
    async upload(names: string[], options?: Parameters<Authority['issue']>[1]): Promise<Answer> {
      const { cert, key } = await authority.issue(names, options)
      return uploads.send(cert, key)
    },
    /** The id of a certificate that is accepted. */
    uploaded: async (): Promise<string> => String((await uploads.upload(['shop.example'])).body['id']),
  }
  return uploads
}
