import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { z } from 'zod'
import { allOperations } from '../api/index.ts'
import { openApiDocument } from '../api/openapi.ts'
import { roleSettings } from '../config.ts'
import { specSchema } from '../lib/ai/spec.ts'
import { serverSettings } from './lib/settings.ts'

// Generates the documents that follow from the code. With --check it writes nothing, and fails if a document differs
// from the code.

const docs = join(fileURLToPath(new URL('..', import.meta.url)), 'docs')
const never = (): never => {
  throw new Error('the document needs no running platform')
}
const operations = allOperations({ apiUrl: 'http://127.0.0.1:7080', cancel: never, workflowUrl: never })
const made = {
  'configuration.md': configuration(),
  'ai-workflow.schema.json': `${JSON.stringify(specSchema(), null, 2)}\n`,
  'openapi.json': `${JSON.stringify(openApiDocument(operations, 'http://127.0.0.1:7080'), null, 2)}\n`,
}

mkdirSync(docs, { recursive: true })
for (const [name, text] of Object.entries(made)) {
  const path = join(docs, name)
  if (!process.argv.includes('--check')) writeFileSync(path, text)
  else if (readFileSync(path, 'utf8') !== text) {
    console.error(`docs/${name} is out of date: run node script/docs.ts`)
    process.exitCode = 1
  }
}

function configuration(): string {
  const rows = new Map<string, { about: string; roles: string[] }>()
  for (const [role, { shape }] of Object.entries({ ...roleSettings, server: serverSettings })) {
    for (const [name, setting] of Object.entries(shape)) {
      const row = rows.get(name) ?? { about: describe(setting), roles: [] }
      row.roles.push(role)
      rows.set(name, row)
    }
  }
  const lines = [...rows].map(
    ([name, { about, roles }]) => `| \`${name}\` | ${about} | ${roles.join(', ')} |`,
  )
  return `# Configuration

All settings are environment variables. Every one has a default that works on one machine;
\`script/server\` sets those that belong together (addresses, key files) for the roles it runs.
This page is made from \`settings/\` by \`node script/docs.ts\`.

| setting | meaning; default | roles |
|---|---|---|
${lines.join('\n')}
`
}

function describe(setting: z.ZodType): string {
  const json = z.toJSONSchema(setting, { io: 'input', unrepresentable: 'any' })
  const { default: fallback } = z.toJSONSchema(setting, { io: 'output', unrepresentable: 'any' })
  const about = (json.description ?? '').replaceAll('|', '\\|')
  return fallback === undefined ? about : `${about}; \`${JSON.stringify(fallback).replaceAll('"', '')}\``
}
