import { fileURLToPath } from 'node:url'
import express, { type Express } from 'express'
import { setPageHeaders as setHeaders } from '../page-headers.ts'

const folder = fileURLToPath(new URL('page/', import.meta.url))

/**
 * Serves the page to which providers send the browser after a login of a connector. It only shows what `oauth/complete`
 * takes: it has no session with which it could act.
 */
export function serveConnectorCallback(app: Express): void {
  app.use('/connectors/assets', express.static(folder, { index: false, setHeaders }))
  app.get('/connectors/callback', (_request, response) => {
    setHeaders(response)
    response.sendFile('index.html', { root: folder, cacheControl: false })
  })
}
