/** The causes of refusals: status of HTTP, and title. */
export const problems = {
  invalid_json: [400, 'The body is not JSON'],
  unauthenticated: [401, 'Authentication is required'],
  not_found: [404, 'Not found'],
  collection_not_found: [404, 'There is no such collection'],
  method_not_allowed: [405, 'The method is not allowed'],
  collection_exists: [409, 'There is another collection of this name'],
  embedder_mismatch: [409, 'The embedder is not the collection’s'],
  stale_version: [409, 'The version is not the latest'],
  too_large: [413, 'This is too large'],
  invalid_input: [422, 'The request is invalid'],
  invalid_filter: [422, 'The filter is invalid'],
  internal: [500, 'Internal error'],
  collection_damaged: [500, 'The collection cannot be read'],
  unavailable: [503, 'Temporarily unavailable'],
  store_full: [507, 'The store is full'],
} as const
export type ErrorCode = keyof typeof problems

/** A refusal of the store. The caller may see all of it: it has no text, vector, token or path. */
export class StoreError extends Error {
  override readonly name = 'StoreError'
  readonly code: ErrorCode
  /** The place of an invalid value: a JSON pointer in the input. */
  readonly pointer: string | null

  constructor(code: ErrorCode, message: string, more: { pointer?: string | null; cause?: unknown } = {}) {
    super(message, { cause: more.cause })
    this.code = code
    this.pointer = more.pointer ?? null
  }

  get status(): number {
    return problems[this.code][0]
  }
}

export const invalid = (pointer: string, message: string): StoreError =>
  new StoreError('invalid_input', message, { pointer })

export const collectionNotFound = (name: string): StoreError =>
  new StoreError('collection_not_found', `There is no collection ${name}`)

/** An error of SQLite, in the caller's words; other errors as they are. */
export function faultOf(error: unknown): unknown {
  const code = (error as { errcode?: unknown }).errcode
  if (typeof code !== 'number') return error
  // The low byte is SQLite's primary code: https://www.sqlite.org/rescode.html
  switch (code & 0xff) {
    case 13:
      return new StoreError('store_full', 'The disk of the store is full', { cause: error })
    case 11:
    case 26:
      return new StoreError('collection_damaged', 'The collection’s file is damaged: restore it', {
        cause: error,
      })
    default:
      return error
  }
}
