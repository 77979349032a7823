import { fileURLToPath } from 'node:url'
import express, { type Express } from 'express'
import { setPageHeaders as setHeaders } from '../page-headers.ts'

const folder = fileURLToPath(new URL('page/', import.meta.url))

/**
 * Serves the page to which mailed links lead where there is no console: it sets a password by the link's token, which is in
 * the fragment and so in no log.
 */
export function serveMailedPages(app: Express): void {
  app.use('/identity/assets', express.static(folder, { index: false, setHeaders }))
  app.get(['/accept-invitation', '/password-reset'], (_request, response) => {
    setHeaders(response)
    response.sendFile('index.html', { root: folder, cacheControl: false })
  })
}
