import { isIP } from 'node:net'
import { isPublic } from './outbound.ts'

// Which images a tenant may name. An engine fetches an image from the registry that its reference names, with the
// platform's network and not the tenant's.

/** Entries are registries, or the beginnings of repositories: `ghcr.io`, `ghcr.io/team`, `registry.example.com:5000`. */
export interface ImagePolicySettings {
  /** Without any, all registries. */
  allowed?: string[]
  denied?: string[]
  /** Registries at private addresses, as the exact `host:port` of references. */
  private?: string[]
}

/** Why a reference is refused. It says the same whatever is at a private address. */
export type ImageFault = 'local_image_id' | 'image_not_allowed'
export type ImagePolicy = (reference: string) => ImageFault | null

export const dockerHub = 'docker.io'

export function makeImagePolicy({
  allowed = [],
  denied = [],
  private: exempt = [],
}: ImagePolicySettings): ImagePolicy {
  const exempted = new Set(exempt.map((target) => target.toLowerCase()))
  return (reference) => {
    if (isLocalId(reference)) return 'local_image_id'
    const { registry, repository } = partsOf(reference)
    const isIn = (entries: string[]): boolean => entries.some((entry) => begins(repository, entry))
    if (isIn(denied) || (allowed.length && !isIn(allowed))) return 'image_not_allowed'
    return isPrivate(registry) && !exempted.has(registry) ? 'image_not_allowed' : null
  }
}

/** An engine takes these for the id of an image that it has, of any tenant. */
const isLocalId = (reference: string): boolean => /^(sha256:.*|[0-9a-f]{12}|[0-9a-f]{64})$/i.test(reference)

/** Engines take both names for Docker Hub. */
export const registryNamed = (host: string): string => (host === `index.${dockerHub}` ? dockerHub : host)

/** `host` or `host:port`; `docker.io` for a reference without. */
export const registryOf = (reference: string): string => partsOf(reference).registry

/** The registry, and the repository with it, without tag and digest. */
function partsOf(reference: string): { registry: string; repository: string } {
  const [name = ''] = reference.toLowerCase().split('@')
  const slash = name.indexOf('/')
  const first = name.slice(0, Math.max(0, slash))
  const isRegistry = /[.:]/.test(first) || first === 'localhost'
  const [host, path] = isRegistry ? [first, name.slice(slash + 1)] : [dockerHub, name]
  const registry = registryNamed(host)
  const untagged = path.replace(/:[^/]*$/, '')
  // Official images have no owner in their names.
  const full = registry === dockerHub && !untagged.includes('/') ? `library/${untagged}` : untagged
  return { registry, repository: `${registry}/${full}` }
}

/** By whole parts of the path: `ghcr.io/team` is not the beginning of `ghcr.io/teamwork`. */
const begins = (repository: string, entry: string): boolean =>
  `${repository}/`.startsWith(`${entry.toLowerCase().replace(/\/$/, '')}/`)

/** By its name alone. Decimal, octal and hexadecimal addresses too: the URL makes them dotted ones. */
export function isPrivate(registry: string): boolean {
  const { hostname = '' } = URL.parse(`http://${registry}`) ?? {}
  if (isIP(hostname) !== 0) return !isPublic(hostname)
  return !hostname.includes('.') || /(^|\.)(localhost|local|internal|home\.arpa)\.?$/.test(hostname)
}
