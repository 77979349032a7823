import { createRequire } from 'node:module'
import { dirname } from 'node:path'
import express, { type Express } from 'express'

// Served from the installed package; the page loads nothing from other sites.
const assets = dirname(createRequire(import.meta.url).resolve('swagger-ui-dist/package.json'))

const page = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Keelson API</title>
<link rel="stylesheet" href="/docs/assets/swagger-ui.css">
</head>
<body>
<div id="reference"></div>
<script src="/docs/assets/swagger-ui-bundle.js"></script>
<script src="/docs/start.js"></script>
</body>
</html>
`
const script = `SwaggerUIBundle({ url: '/api/v1/openapi.json', dom_id: '#reference', deepLinking: true, validatorUrl: null })`

/** Serves the document at /api/v1/openapi.json and the reference at /docs. */
export function serveDocs(app: Express, document: Record<string, unknown>): void {
  app.get('/api/v1/openapi.json', (_request, response) => void response.json(document))
  app.get('/docs', (_request, response) => void response.type('html').send(page))
  app.get('/docs/start.js', (_request, response) => void response.type('js').send(script))
  app.use('/docs/assets', express.static(assets, { index: false }))
}
