import { createPrivateKey, X509Certificate } from 'node:crypto'
import { chmod, mkdir, readdir, readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { EngineRefused } from '../errors.ts'
import type { LoadBalancerSpec } from '../load-balancers.ts'
import { nullIfMissing, publishText } from '../system/files.ts'
import type { Place } from './places.ts'
import { anId } from './values.ts'

// Certificates with their keys, authorities that targets' certificates are checked against, and the list of each
// listener's certificates, as files that only root reads.

const certificateFile = (place: Place, id: string): string => join(place.secrets, `${anId(id)}.pem`)
export const caFile = (place: Place, id: string): string => join(place.secrets, `${anId(id)}.ca`)
export const listFile = (place: Place, port: number): string => join(place.secrets, `${port}.list`)

const blocks = /-----BEGIN ([A-Z0-9 ]+)-----[\s\S]+?-----END \1-----/g

const blocksOf = (pem: string): { kind: string; text: string }[] =>
  [...pem.matchAll(blocks)].map(([text, kind = '']) => ({ kind, text }))

/** Throws EngineRefused if the key does not belong to the first certificate. */
function checkCertificate(id: string, pem: string): void {
  try {
    const all = blocksOf(pem)
    const [leaf] = all
      .filter(({ kind }) => kind === 'CERTIFICATE')
      .map(({ text }) => new X509Certificate(text))
    const key = all.find(({ kind }) => kind.endsWith('PRIVATE KEY'))
    if (leaf && key && leaf.checkPrivateKey(createPrivateKey(key.text))) return
  } catch {
    // Refused below: the reason must not quote a key.
  }
  throw new EngineRefused(`The certificate ${anId(id)} has no key, or not its own`)
}

/** The files that a description needs, by path. Throws EngineRefused. */
export function secretFiles(spec: LoadBalancerSpec, place: Place): Map<string, string> {
  const files = new Map<string, string>()
  for (const { id, pem } of spec.certificates) {
    checkCertificate(id, pem)
    files.set(certificateFile(place, id), pem)
  }
  for (const { id, pem } of spec.ca_trusts) files.set(caFile(place, id), pem)
  for (const { port, protocol, certificate_ids } of spec.listeners) {
    if (protocol !== 'https') continue
    for (const id of certificate_ids)
      if (!files.has(certificateFile(place, id)))
        throw new EngineRefused('A listener’s certificate is unknown')
    if (certificate_ids.length === 0) throw new EngineRefused('A listener for HTTPS needs a certificate')
    const list = certificate_ids.map((id) => `${certificateFile(place, id)}\n`)
    files.set(listFile(place, port), list.join(''))
  }
  return files
}

/** Writes the files that differ. Returns whether any did. Others stay until `dropOthers`. */
export async function writeSecrets(place: Place, files: Map<string, string>): Promise<boolean> {
  await mkdir(place.secrets, { recursive: true })
  await chmod(place.secrets, 0o700)
  let changed = false
  for (const [path, text] of files) {
    if ((await readFile(path, 'utf8').catch(nullIfMissing)) === text) continue
    await publishText(path, text)
    changed = true
  }
  return changed
}

export async function dropOthers(place: Place, files: Map<string, string>): Promise<void> {
  for (const name of (await readdir(place.secrets).catch(nullIfMissing)) ?? []) {
    const path = join(place.secrets, name)
    if (!files.has(path)) await rm(path, { force: true })
  }
}
