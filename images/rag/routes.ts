import { StoreError } from './errors.ts'
import type { CollectionSpec, Store } from './store.ts'
import { readAside, readDocument, readEmbedder, readQuery, readSpec } from './wire.ts'

// What the store answers over HTTP: its ten methods.

export interface Call {
  /** Of the path, decoded. */
  names: string[]
  query: URLSearchParams
  /** Reads the body. Throws `too_large` and `invalid_json`. */
  body: () => Promise<unknown>
}
/** Null: the answer is 204. */
type Handler = (store: Store, call: Call) => Promise<object | null>

export interface Route {
  method: string
  /** The pieces of the path; null stands for a name. */
  path: (string | null)[]
  handle: Handler
}

const collection = ['collections', null]
const document = [...collection, 'documents', null]
const nameIn = ({ names }: Call, index: number): string => names[index] as string

export const routes: Route[] = [
  {
    method: 'GET',
    path: ['health'],
    async handle(store) {
      const health = await store.health()
      if (!health.ready) throw new StoreError('unavailable', health.reason ?? 'The store is not ready')
      return health
    },
  },
  {
    method: 'PUT',
    path: collection,
    handle: async (store, call) =>
      store.createCollection(nameIn(call, 0), readSpec(await call.body()) as unknown as CollectionSpec),
  },
  { method: 'GET', path: collection, handle: (store, call) => store.stats(nameIn(call, 0)) },
  {
    method: 'DELETE',
    path: collection,
    async handle(store, call) {
      await store.dropCollection(nameIn(call, 0))
      return null
    },
  },
  {
    method: 'PUT',
    path: document,
    async handle(store, call) {
      const { embedder, document: given } = readDocument(nameIn(call, 1), await call.body())
      return store.replaceDocument(nameIn(call, 0), embedder, given)
    },
  },
  {
    method: 'DELETE',
    path: document,
    async handle(store, call) {
      await store.deleteDocument(nameIn(call, 0), nameIn(call, 1), Number(call.query.get('version')))
      return null
    },
  },
  {
    method: 'POST',
    path: [...collection, 'search'],
    handle: async (store, call) => store.search(nameIn(call, 0), readQuery(await call.body())),
  },
  {
    method: 'POST',
    path: [...collection, 'aside'],
    async handle(store, call) {
      const { embedder, vectors, most } = readAside(await call.body())
      return store.putAside(nameIn(call, 0), embedder, vectors, most)
    },
  },
  {
    method: 'PUT',
    path: [...collection, 'embedder'],
    handle: async (store, call) => store.useEmbedder(nameIn(call, 0), readEmbedder(await call.body())),
  },
  {
    method: 'POST',
    path: [...collection, 'snapshot'],
    handle: (store, call) => store.snapshot(nameIn(call, 0)),
  },
]

/** Throws `not_found`, and `method_not_allowed` if the path has other methods. */
export function routeOf(method: string, pathname: string): { route: Route; names: string[] } {
  const pieces = decode(pathname)
  const ofPath = routes.filter(
    ({ path }) =>
      path.length === pieces.length && path.every((one, index) => one === null || one === pieces[index]),
  )
  if (!ofPath.length) throw new StoreError('not_found', 'The store does not serve this')
  const route = ofPath.find((one) => one.method === method)
  if (!route)
    throw new StoreError('method_not_allowed', `This takes ${ofPath.map((one) => one.method).join(', ')}`)
  return { route, names: pieces.filter((_, index) => route.path[index] === null) }
}

function decode(pathname: string): string[] {
  try {
    return pathname.slice(1).split('/').map(decodeURIComponent)
  } catch {
    throw new StoreError('not_found', 'The path is not valid')
  }
}
