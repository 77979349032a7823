import { fileURLToPath } from 'node:url'
import express, { type Express } from 'express'
import { setPageHeaders } from '../page-headers.ts'

const folder = fileURLToPath(new URL('dashboard/', import.meta.url))

/** Serves the dashboard of each deploy server at /deploy/{id}. The page is the same for all, and asks for the login. */
export function serveDashboard(app: Express): void {
  app.use('/deploy/assets', express.static(folder, { index: false, setHeaders: setPageHeaders }))
  app.get(/^\/deploy\/[0-9a-f-]{36}$/, (_request, response) => {
    setPageHeaders(response)
    response.sendFile('index.html', { root: folder, cacheControl: false })
  })
}
