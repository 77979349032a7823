import { readFileSync } from 'node:fs'
import { expect, test } from '@jest/globals'
import { Ajv2020 } from 'ajv/dist/2020.js'
import { codes } from '../../lib/ai/findings.ts'
import { specSchema } from '../../lib/ai/spec.ts'
import { validate } from '../../lib/ai/validate.ts'
import { lookups } from '../support/ai/specs.ts'

// The reference of specs, docs/ai-workflows.md, and their published JSON Schema.

const page = readFileSync(new URL('../../docs/ai-workflows.md', import.meta.url), 'utf8')
const specs = [...page.matchAll(/```json\n(.*?)```/gs)]
  .map(([, json]) => JSON.parse(json ?? '') as Record<string, unknown>)
  .filter((json) => 'spec' in json)
const fits = new Ajv2020({ strict: false }).compile(specSchema())

test('The specs of the page are valid', async () => {
  expect(specs.length).toBeGreaterThan(0)
  for (const spec of specs) {
    const { nodes, others } = await validate(spec, lookups({ collection: async () => ({}) }))
    expect({ nodes, others }).toEqual({ nodes: {}, others: [] })
  }
})

test('The published JSON Schema takes them, and refuses what validation calls invalid_field', async () => {
  for (const spec of specs) {
    expect([fits(spec), fits.errors]).toEqual([true, null])
    expect(fits({ ...spec, spec: 2 })).toBe(false)
    expect(fits({ ...spec, more: 1 })).toBe(false)
    expect(fits({ ...spec, nodes: { a: { kind: 'code' } } })).toBe(false)
    expect(fits({ ...spec, nodes: { 'a-b': { kind: 'template', value: 1 } } })).toBe(false)
    expect(fits({ ...spec, nodes: { a: { kind: 'template' } } })).toBe(false)
    expect(fits({ ...spec, output: undefined })).toBe(false)
  }
})

test('The page names each kind of node, each of its fields and each code', () => {
  const schema = JSON.stringify(specSchema())
  const names = [...schema.matchAll(/"([a-z_]+)":\{/g)].map(([, name]) => name ?? '')
  const words = new Set(page.match(/[a-z_]+/g))
  const keywords = ['properties', 'items', 'defs', 'not', 'propertyNames', 'additionalProperties']
  for (const name of new Set([...names, ...codes]))
    if (!keywords.includes(name)) expect([...words]).toContain(name)
})
