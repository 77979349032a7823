import type { Response } from 'express'

// Pages hold tokens: only their own files run in them, no other page frames them, and the sites to which they link do not learn
// their addresses.
const policy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self'",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
].join('; ')

/** The headers of a page of ours and of its files. */
export function setPageHeaders(response: Response): void {
  response.set('Content-Security-Policy', policy)
  response.set('Referrer-Policy', 'no-referrer')
  response.set('Cache-Control', 'no-cache') // a new release of the api brings its own files
}
