import { createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto'
import { isIPv4, isIPv6 } from 'node:net'
import { type InputError, InvalidInput } from '../../lib/problem.ts'

// Reads PEM certificates, chains and keys of tenants.

/** What a chain says of itself; the times, names and fingerprint are those of its first certificate. */
export interface Chain {
  /** The certificates in their order, in PEM, without anything else. */
  pem: string
  leaf: X509Certificate
  /** Names and addresses for which a client accepts it. */
  domains: string[]
  issuer: string
  not_before: Date
  not_after: Date
  /** SHA-256, in lower case without colons. */
  fingerprint: string
}

/** A chain of 10 certificates with keys of 4096 bits is half as long. */
export const longestPem = 64 * 1024

const blocks = /-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----/g

const refuse = (...errors: InputError[]): InvalidInput => new InvalidInput(422, errors)

/** Reads one or more certificates in PEM. Throws InvalidInput. */
export function readCertificates(pointer: string, pem: string): X509Certificate[] {
  const parts = pem.match(blocks) ?? []
  if (parts.length === 0) throw refuse({ pointer, message: 'must be certificates in PEM' })
  return parts.map((part, i) => {
    try {
      return new X509Certificate(part)
    } catch {
      throw refuse({ pointer, message: `certificate ${i + 1} cannot be read` })
    }
  })
}

/** Whether the certificate may issue others. */
export const isAuthority = (certificate: X509Certificate): boolean => certificate.ca

export const toPem = (certificates: X509Certificate[]): string =>
  certificates.map((certificate) => certificate.toString()).join('')

/**
 * Reads a certificate chain, leaf first, that is valid at `now` and belongs to the key. Throws InvalidInput with
 * pointers to `certificate_pem` and `private_key_pem`.
 */
export function readChain(certificatePem: string, keyPem: string, now = new Date()): Chain {
  const pointer = '/certificate_pem'
  const certificates = readCertificates(pointer, certificatePem)
  const [leaf] = certificates
  if (!leaf) throw refuse({ pointer, message: 'must be certificates in PEM' })
  const key = readKey(keyPem)
  if (!leaf.checkPrivateKey(key))
    throw refuse({ pointer: '/private_key_pem', message: 'does not belong to the first certificate' })
  const errors: InputError[] = []
  certificates.forEach((certificate, i) => {
    const issuer = certificates[i + 1]
    if (issuer && !(certificate.checkIssued(issuer) && certificate.verify(issuer.publicKey)))
      errors.push({ pointer, message: `certificate ${i + 1} was not issued by certificate ${i + 2}` })
    if (certificate.validToDate <= now)
      errors.push({ pointer, message: `certificate ${i + 1} expired on ${certificate.validTo}` })
    if (certificate.validFromDate > now)
      errors.push({ pointer, message: `certificate ${i + 1} is not valid before ${certificate.validFrom}` })
  })
  const domains = domainsOf(leaf)
  if (domains.length === 0)
    errors.push({ pointer, message: 'the first certificate has no subject alternative names' })
  if (errors.length) throw refuse(...errors)
  return {
    pem: toPem(certificates),
    leaf,
    domains,
    issuer: leaf.issuer.replaceAll('\n', ', '),
    not_before: leaf.validFromDate,
    not_after: leaf.validToDate,
    fingerprint: leaf.fingerprint256.replaceAll(':', '').toLowerCase(),
  }
}

/** The key of a TLS server: RSA of 2048 bits or more, or EC. Throws InvalidInput. */
function readKey(pem: string): KeyObject {
  const pointer = '/private_key_pem'
  let key: KeyObject
  try {
    key = createPrivateKey(pem)
  } catch {
    throw refuse({ pointer, message: 'must be a private key in PEM, without a passphrase' })
  }
  const { asymmetricKeyType: type, asymmetricKeyDetails: details } = key
  const isStrong = type === 'ec' || (type === 'rsa' && (details?.modulusLength ?? 0) >= 2048)
  if (!isStrong) throw refuse({ pointer, message: 'must be an RSA key of 2048 bits or more, or an EC key' })
  return key
}

/** A key in the one form that every TLS server reads. */
export const keyToPem = (pem: string): string =>
  createPrivateKey(pem).export({ type: 'pkcs8', format: 'pem' }).toString()

const domainsOf = ({ subjectAltName }: X509Certificate): string[] =>
  (subjectAltName ?? '').split(', ').flatMap((entry) => {
    const [kind, ...rest] = entry.split(':')
    const value = rest.join(':')
    if (kind === 'DNS') return [value.toLowerCase()]
    return kind === 'IP Address' && (isIPv4(value) || isIPv6(value)) ? [value] : []
  })
