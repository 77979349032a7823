import { createPrivateKey, X509Certificate } from 'node:crypto'
import { chmod, mkdir, readdir, readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import type { LeftOut, LoadBalancerSpec } from '../load-balancers.ts'
import { digest } from '../system/digest.ts'
import { nullIfMissing, publishText } from '../system/files.ts'
import type { Place } from './places.ts'
import { endsTls } from './protocols.ts'
import { anId } from './values.ts'

// Certificates with their keys, authorities that targets' certificates are checked against, and the list of each
// listener's certificates, as files that only root reads. A certificate and a list have the hash of their content in their
// names, so that what is being checked never takes the place of what runs.

const digits = 16
const certificateFile = (place: Place, id: string, pem: string): string =>
  join(place.secrets, `${anId(id)}_${digest(pem, digits)}.pem`)
const listFile = (place: Place, port: number, list: string): string =>
  join(place.secrets, `${port}_${digest(list, digits)}.list`)
export const caFile = (place: Place, id: string): string => join(place.secrets, `${anId(id)}.ca`)

/** What a path below `secrets` is, as HAProxy's messages name it; null if it is none. */
export function secretIn(message: string): { kind: 'certificate' | 'ca_trust'; id: string } | null {
  const [, id, type] = /\/secrets\/([A-Za-z0-9-]+)(?:_[0-9a-f]+)?\.(pem|ca)\b/.exec(message) ?? []
  return id === undefined ? null : { kind: type === 'pem' ? 'certificate' : 'ca_trust', id }
}

/** Certificates by id, as files. */
export type Certificates = Map<string, { path: string; pem: string }>

const textOf = async (path: string): Promise<string> =>
  (await readFile(path, 'utf8').catch(nullIfMissing)) ?? ''

/** The certificates that a configuration uses. */
export async function certificatesOf(place: Place, config: string): Promise<Certificates> {
  const found: Certificates = new Map()
  const lists = new Set(
    [...config.matchAll(/\d+_[0-9a-f]+\.list/g)].map(([name]) => join(place.secrets, name)),
  )
  for (const list of lists)
    for (const path of (await textOf(list)).split('\n').filter(Boolean)) {
      const [secret, pem] = [secretIn(path), await textOf(path)]
      if (secret && pem !== '') found.set(secret.id, { path, pem })
    }
  return found
}

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

export interface Secrets {
  /** By path. */
  files: Map<string, string>
  /** The file of each listener's certificates, by its port. */
  lists: Map<number, string>
}

/**
 * The files that a description needs. What cannot be used has no file, and is added to `leftOut`; the certificate that was
 * used before stays in its place.
 */
export function secretFiles(
  spec: LoadBalancerSpec,
  place: Place,
  leftOut: LeftOut[],
  former: Certificates,
): Secrets {
  const [files, lists] = [new Map<string, string>(), new Map<number, string>()]
  const certificates: Certificates = new Map()
  const leaveOut = (kind: LeftOut['kind'], id: string, reason: string): void => {
    if (!isIn(leftOut, kind, id)) leftOut.push({ kind, id, reason })
  }
  for (const { id, pem } of spec.certificates) {
    if (!passes(hasOwnKey, pem))
      leaveOut('certificate', id, 'It has no private key, or the key does not belong to it')
    const used = isIn(leftOut, 'certificate', id)
      ? former.get(id)
      : { path: certificateFile(place, id, pem), pem }
    if (used) certificates.set(id, used)
  }
  for (const { path, pem } of certificates.values()) files.set(path, pem)
  for (const { id, pem } of spec.ca_trusts)
    if (!passes(hasCertificates, pem)) leaveOut('ca_trust', id, 'It has no certificates, or damaged ones')
    else if (!isIn(leftOut, 'ca_trust', id)) files.set(caFile(place, id), pem)
  for (const { port, protocol, certificate_ids } of spec.listeners) {
    if (!endsTls({ protocol })) continue
    for (const id of certificate_ids)
      if (!spec.certificates.some((one) => one.id === id)) leaveOut('certificate', id, 'It is unknown')
    const usable = certificate_ids.flatMap((id) => certificates.get(id)?.path ?? [])
    const list = usable.map((path) => `${path}\n`).join('')
    if (list === '') {
      leaveOut('listener', String(port), 'It has no certificate that can be used')
      continue
    }
    lists.set(port, listFile(place, port, list))
    files.set(listFile(place, port, list), list)
  }
  return { files, lists }
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
