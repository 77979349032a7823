import { fileURLToPath } from 'node:url'
import express, { type Express, type Response } from 'express'

const folder = fileURLToPath(new URL('dashboard/', import.meta.url))

// The page holds a token that can deploy: nothing but its own files runs in it, and no other page frames it.
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

function setHeaders(response: Response): void {
  response.set('Content-Security-Policy', policy)
  response.set('Cache-Control', 'no-cache') // a new release of the api brings its own files
}

/** Serves the dashboard of each deploy server at /deploy/{id}. The page is the same for all, and asks for the login. */
export function serveDashboard(app: Express): void {
  app.use('/deploy/assets', express.static(folder, { index: false, setHeaders }))
  app.get(/^\/deploy\/[0-9a-f-]{36}$/, (_request, response) => {
    setHeaders(response)
    response.sendFile('index.html', { root: folder, cacheControl: false })
  })
}
