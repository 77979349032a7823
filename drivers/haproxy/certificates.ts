import { createPrivateKey, X509Certificate } from 'node:crypto'
import { chmod, mkdir, readdir, readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import type { LeftOut, LoadBalancerSpec } from '../load-balancers.ts'
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

const certificatesIn = (pem: string): X509Certificate[] =>
  blocksOf(pem)
    .filter(({ kind }) => kind === 'CERTIFICATE')
    .map(({ text }) => new X509Certificate(text))

function hasOwnKey(pem: string): boolean {
  const [leaf] = certificatesIn(pem)
  const key = blocksOf(pem).find(({ kind }) => kind.endsWith('PRIVATE KEY'))
  return leaf !== undefined && key !== undefined && leaf.checkPrivateKey(createPrivateKey(key.text))
}

const hasCertificates = (pem: string): boolean => certificatesIn(pem).length > 0

/** Whether the check passes. It does not tell why it failed: an error could quote a key. */
function passes(check: (pem: string) => boolean, pem: string): boolean {
  try {
    return check(pem)
  } catch {
    return false
  }
}

export const isIn = (list: LeftOut[], kind: LeftOut['kind'], id: string | number): boolean =>
  list.some((one) => one.kind === kind && one.id === String(id))

/** The files that a description needs, by path. What cannot be used has no file, and is added to `leftOut`. */
export function secretFiles(spec: LoadBalancerSpec, place: Place, leftOut: LeftOut[]): Map<string, string> {
  const files = new Map<string, string>()
  const leaveOut = (kind: LeftOut['kind'], id: string, reason: string): void => {
    if (!isIn(leftOut, kind, id)) leftOut.push({ kind, id, reason })
  }
  for (const { id, pem } of spec.certificates)
    if (!passes(hasOwnKey, pem)) leaveOut('certificate', id, 'It has no private key, or not its own')
    else if (!isIn(leftOut, 'certificate', id)) files.set(certificateFile(place, id), pem)
  for (const { id, pem } of spec.ca_trusts)
    if (!passes(hasCertificates, pem)) leaveOut('ca_trust', id, 'It has no certificates, or damaged ones')
    else if (!isIn(leftOut, 'ca_trust', id)) files.set(caFile(place, id), pem)
  for (const { port, protocol, certificate_ids } of spec.listeners) {
    if (protocol !== 'https') continue
    for (const id of certificate_ids)
      if (!spec.certificates.some((one) => one.id === id)) leaveOut('certificate', id, 'It is unknown')
    const usable = certificate_ids.map((id) => certificateFile(place, id)).filter((path) => files.has(path))
    if (usable.length === 0) leaveOut('listener', String(port), 'It has no certificate that can be used')
    else files.set(listFile(place, port), usable.map((path) => `${path}\n`).join(''))
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
