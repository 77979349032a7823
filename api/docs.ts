import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import type { Express } from 'express'
import { keptFile } from './kept-files.ts'

// Served from the installed package; the page loads nothing from other sites.
const assets = dirname(createRequire(import.meta.url).resolve('swagger-ui-dist/package.json'))

const page = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Keelson API</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/docs/assets/swagger-ui.css">
</head>
<body>
<div id="reference"></div>
<script src="/docs/assets/swagger-ui-bundle.js"></script>
<script src="/docs/start.js"></script>
</body>
</html>
`
// All areas are closed at first, and a field finds one by its name.
const script = `SwaggerUIBundle({
  url: '/api/v1/openapi.json',
  dom_id: '#reference',
  deepLinking: true,
  validatorUrl: null,
  docExpansion: 'none',
  defaultModelsExpandDepth: -1,
  filter: true,
})`

const files = { 'swagger-ui.css': 'text/css', 'swagger-ui-bundle.js': 'text/javascript' }

/** Serves the document at /api/v1/openapi.json and the reference at /docs. */
export function serveDocs(app: Express, document: Record<string, unknown>): void {
  app.get(
    '/api/v1/openapi.json',
    keptFile('application/json; charset=utf-8', () => JSON.stringify(document)),
  )
  app.get(
    '/docs',
    keptFile('text/html; charset=utf-8', () => page),
  )
  app.get(
    '/docs/start.js',
    keptFile('text/javascript; charset=utf-8', () => script),
  )
  for (const [name, type] of Object.entries(files)) {
    app.get(
      `/docs/assets/${name}`,
      keptFile(`${type}; charset=utf-8`, () => readFile(join(assets, name))),
    )
  }
}
