import { expect, test } from '@jest/globals'
import type { ListedTool } from '../../lib/mcp-tools.ts'
import { keptListing, listingOf } from '../../models/tools/listings.ts'

const add: ListedTool = {
  name: 'add',
  title: 'Adds',
  description: 'two numbers',
  input_schema: { type: 'object', properties: { a: { $ref: '#/$defs/n' } }, $defs: { n: {} } },
  output_schema: null,
  annotations: {},
}
const kept = (tools: ListedTool[], truncated = false) =>
  listingOf({ listing_json: keptListing({ tools, truncated }) })

test('A list is kept with names, descriptions and schemas', () => {
  const { name, description, input_schema, output_schema } = add
  expect(kept([add])).toEqual([{ name, description, input_schema, output_schema }])
  expect(kept([])).toEqual([])
})

test('A list that is not whole, or too large, is not kept: nobody could say what is missing', () => {
  expect(kept([add], true)).toBeNull()
  expect(kept([{ ...add, input_schema: { description: 'x'.repeat(256 * 1024) } }])).toBeNull()
})
