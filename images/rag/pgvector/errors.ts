import { StoreError } from '../errors.ts'

// https://www.postgresql.org/docs/17/errcodes-appendix.html

/** The code of an error of PostgreSQL; null for any other error. */
export const sqlStateOf = (error: unknown): string | null => {
  const { code } = error as { code?: unknown }
  return typeof code === 'string' && /^[0-9A-Z]{5}$/.test(code) ? code : null
}

/** A table that was there when the search began. */
export const isTableGone = (error: unknown): boolean => sqlStateOf(error) === '42P01'

/** An error of PostgreSQL, in the caller's words; other errors as they are. */
export function pgFaultOf(error: unknown): unknown {
  if (error instanceof StoreError) return error
  const state = sqlStateOf(error)
  if (state === '53100')
    return new StoreError('store_full', 'The disk of the store is full', { cause: error })
  if (state === 'XX001' || state === 'XX002')
    return new StoreError('collection_damaged', 'The collection’s files are damaged: restore them', {
      cause: error,
    })
  // The connection is gone, or there is none: classes 08 (connection) and 57P (shutdown), too many, or the socket's own errors.
  const isAway =
    state === null
      ? isConnectionError(error)
      : state.startsWith('08') || state.startsWith('57P') || state === '53300'
  return isAway
    ? new StoreError('unavailable', 'The database of the store does not answer', { cause: error })
    : error
}

function isConnectionError(error: unknown): boolean {
  const { code, message } = error as { code?: unknown; message?: unknown }
  return (
    ['ENOENT', 'ECONNREFUSED', 'ECONNRESET', 'EPIPE'].includes(String(code)) ||
    /Connection terminated|connection timeout|timeout exceeded|Client was closed|not queryable/i.test(
      String(message),
    )
  )
}
