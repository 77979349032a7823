import type { Lookups, PublishedWorkflow, ToolSchemas } from '../../../lib/ai/lookups.ts'
import { objectOf } from '../../../lib/ai/types.ts'

/** A spec of one template, with other fields. */
export const specOf = (nodes: Record<string, unknown>, more: Record<string, unknown> = {}): object => ({
  spec: 1,
  input_schema: {
    type: 'object',
    properties: {
      text: { type: 'string' },
      count: { type: 'integer' },
      tags: { type: 'array', items: { type: 'string' } },
    },
    required: ['text'],
  },
  budget: { usd: 1, tokens: 200_000, wall_sec: 600 },
  models: { fast: { connector: 'openai', model: 'gpt-4o-mini' } },
  nodes,
  output: null,
  ...more,
})

const search: ToolSchemas = {
  input_schema: {
    type: 'object',
    properties: { query: { type: 'string' }, most: { type: 'integer' } },
    required: ['query'],
  },
  output_schema: {
    type: 'object',
    properties: { hits: { type: 'array', items: { type: 'string' } } },
    required: ['hits'],
  },
}

export const shout: PublishedWorkflow = {
  input: objectOf({ text: 'string' }),
  output: objectOf({ loud: 'string' }),
  depth: 1,
  calls: ['wf-shout'],
}

const nothingKnown = { input_schema: null, output_schema: null }

/** A tenant with one of each kind. */
export const lookups = (more: Partial<Lookups> = {}): Lookups => ({
  connector: async (reference) => (reference === 'openai' ? {} : null),
  model: async (_, name) => ['gpt-4o-mini', 'gpt-4o'].includes(name),
  tool: async (reference, name) => {
    if (reference === 'local') return { ...nothingKnown, not_callable: 'is a server of stdio' }
    return reference === 'docs' && name !== 'none' ? search : null
  },
  collection: async (reference) => (reference === 'manuals' ? {} : null),
  workflow: async (reference) => (reference === 'shout' ? shout : null),
  most: { usd: 10, tokens: 1_000_000, wall_sec: 86_400 },
  self_id: 'wf-self',
  ...more,
})
