import { readFileSync } from 'node:fs'
import { describe, expect, test } from '@jest/globals'
import { ownProvider } from '../../models/llm/own-models.ts'
import { listVersion, makePrices, noUsage, OwnPrices } from '../../models/llm/prices.ts'

// What calls cost: whole billionths of a dollar, by a named list.

const usage = { ...noUsage, input_tokens: 1_000_000, output_tokens: 1_000_000 }
const call = { provider: 'openai', base_url: 'https://api.openai.com/v1', model: 'gpt-4o', usage }

describe('the list that comes with the package', () => {
  const priceOf = makePrices(null)

  test('knows models of providers', () => {
    expect(priceOf(call)).toEqual({ nano_usd: 12_500_000_000, version: listVersion })
  })
  test('knows a provider by its URL', () => {
    expect(priceOf({ ...call, provider: 'openai_compatible' })).toEqual(priceOf(call))
  })
  test('has lower prices for what the cache gave', () => {
    const cached = priceOf({ ...call, usage: { ...usage, cache_read_tokens: 1_000_000 } })
    expect(cached?.nano_usd).toBeLessThan(priceOf(call)?.nano_usd ?? 0)
  })
  test('costs whole billionths', () => {
    const small = priceOf({ ...call, usage: { ...noUsage, input_tokens: 1 } })
    expect(small?.nano_usd).toBe(2_500)
  })
  test.each([
    ['model', { model: 'no-such-model' }],
    ['provider', { provider: 'openai_compatible', base_url: 'http://127.0.0.1:1/v1' }],
  ])('knows no price of an unknown %s', (_, change) => {
    expect(priceOf({ ...call, ...change })).toBeNull()
  })
  test('has no part in the platform’s own models, which cost nothing', () => {
    const own = { ...call, provider: ownProvider, base_url: '', model: 'all-MiniLM-L6-v2-int8' }
    expect(priceOf(own)).toEqual({ nano_usd: 0, version: listVersion })
    const prices = { keelson: { 'all-MiniLM-L6-v2-int8': { input: 0.01, output: 0 } } }
    expect(makePrices({ version: 'mine', prices })(own)).toEqual({ nano_usd: 10_000_000, version: 'mine' })
  })
  test('is the version that package.json pins', () => {
    const { dependencies } = JSON.parse(
      readFileSync(new URL('../../package.json', import.meta.url), 'utf8'),
    ) as { dependencies: Record<string, string> }
    expect(listVersion).toBe(`genai-prices ${dependencies['@pydantic/genai-prices']}`)
  })
})

describe('an operator’s own list', () => {
  const own = OwnPrices.parse({
    version: 'contract-7',
    prices: { openai: { 'gpt-4o': { input: 1, output: 2, cache_read: 0.1 } } },
  })

  test('stands above the package’s', () => {
    expect(makePrices(own)(call)).toEqual({ nano_usd: 3_000_000_000, version: 'contract-7' })
  })
  test('has prices for the cache, or takes those of the input', () => {
    const cached = { ...usage, cache_read_tokens: 500_000, cache_write_tokens: 100_000 }
    expect(makePrices(own)({ ...call, usage: cached })?.nano_usd).toBe(2_550_000_000)
  })
  test('leaves other models to the package’s', () => {
    expect(makePrices(own)({ ...call, model: 'gpt-4o-mini' })?.version).toBe(listVersion)
  })
  test.each([
    ['without a version', { prices: {} }],
    ['with a negative price', { version: '1', prices: { a: { b: { input: -1, output: 1 } } } }],
    ['with a misspelt price', { version: '1', prices: { a: { b: { input: 1, ouput: 1 } } } }],
  ])('is refused %s', (_, list) => {
    expect(OwnPrices.safeParse(list).success).toBe(false)
  })
})
