// The paths of a registry (the OCI distribution specification): /v2/SERVER/IMAGE/… of this platform, and /v2/IMAGE/… of the
// registry that a deploy server has.

import { imagePath } from '../../lib/image-names.ts'

const aServer = '[0-9a-f]{12}'
const aTag = String.raw`\w[\w.-]{0,127}`
const aDigest = 'sha256:[0-9a-f]{64}'
const anUpload = '[0-9A-Za-z_-]{1,64}'

const longestImage = 200

interface Kind {
  what: 'manifest' | 'blob' | 'uploads' | 'upload' | 'tags'
  path: RegExp
  methods: readonly string[]
}

const of = (rest: string): RegExp => new RegExp(`^/v2/(${aServer})/(${imagePath})${rest}$`)

const kinds: Kind[] = [
  { what: 'manifest', path: of(`/manifests/(${aDigest}|${aTag})`), methods: ['GET', 'HEAD', 'PUT'] },
  { what: 'blob', path: of(`/blobs/(${aDigest})`), methods: ['GET', 'HEAD'] },
  { what: 'uploads', path: of('/blobs/uploads/?'), methods: ['POST'] },
  { what: 'upload', path: of(`/blobs/uploads/(${anUpload})`), methods: ['GET', 'PATCH', 'PUT', 'DELETE'] },
  { what: 'tags', path: of('/tags/list'), methods: ['GET'] },
]

export interface RegistryPath {
  what: Kind['what']
  methods: readonly string[]
  /** The last 12 characters of the deploy server’s id. */
  server: string
  image: string
  /** A tag, a digest, or the id of an upload. */
  name: string
}

/** Null if a registry has no such path. */
export function readRegistryPath(path: string): RegistryPath | null {
  for (const { what, path: pattern, methods } of kinds) {
    const [, server = '', image = '', name = ''] = pattern.exec(path) ?? []
    if (server !== '' && image.length <= longestImage) return { what, methods, server, image, name }
  }
  return null
}

export const isDigest = (name: string): boolean => new RegExp(`^${aDigest}$`).test(name)

/** Where a client finds what the registry names by a location of its own. */
export function outsideLocation(location: string, server: string): string {
  const { pathname, search } = new URL(location, 'http://registry')
  return pathname.replace(/^\/v2\//, `/v2/${server}/`) + search
}

/**
 * The query for the registry: a layer of another image can be taken over only from this registry. Else it is sent as any
 * other.
 */
export function insideQuery(query: URLSearchParams, server: string): string {
  const inside = new URLSearchParams(query)
  const from = inside.get('from')
  if (from?.startsWith(`${server}/`)) inside.set('from', from.slice(server.length + 1))
  else if (from !== null) {
    inside.delete('from')
    inside.delete('mount')
  }
  const text = inside.toString()
  return text === '' ? '' : `?${text}`
}
