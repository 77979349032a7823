import { calcPrice } from '@pydantic/genai-prices'
import { z } from 'zod'
import { ownProvider } from './own-models.ts'

// What calls cost, by a list that comes with the package and works offline, and by the operator's own list above it.

/** The tokens of one call. */
export interface Usage {
  /** All of the input, with what was read from the provider's cache and written to it. */
  input_tokens: number
  output_tokens: number
  cache_read_tokens: number
  cache_write_tokens: number
}

export const noUsage: Usage = {
  input_tokens: 0,
  output_tokens: 0,
  cache_read_tokens: 0,
  cache_write_tokens: 0,
}
export const tokensOf = ({ input_tokens, output_tokens }: Usage): number => input_tokens + output_tokens

/** A cost in whole billionths of a dollar; `version` names the list. */
export interface Cost {
  nano_usd: number
  version: string
}

/** The cost of a call; null if no list has the model. */
export type PriceOf = (call: {
  provider: string
  base_url: string
  model: string
  usage: Usage
}) => Cost | null

const usd = z.number().nonnegative()

/** The operator's list: dollars per million tokens, by provider and model. */
export const OwnPrices = z.strictObject({
  /** Stored with each cost: change it with the prices. */
  version: z.string().min(1).max(60),
  prices: z.record(
    z.string(),
    z.record(
      z.string(),
      z.strictObject({
        input: usd,
        output: usd,
        /** Without it, as other input. */
        cache_read: usd.optional(),
        cache_write: usd.optional(),
      }),
    ),
  ),
})
export type OwnPrices = z.output<typeof OwnPrices>

/** The version of the package that has the list: package.json pins it, and a test compares the two. */
export const listVersion = 'genai-prices 0.1.8'

/**
 * `own`: the operator's list, whose prices stand above the package's. The platform's own models cost nothing but what that
 * list says.
 */
export const makePrices =
  (own: OwnPrices | null): PriceOf =>
  ({ provider, base_url, model, usage }) => {
    const set = own?.prices[provider]?.[model]
    if (own && set) return { nano_usd: costBy(set, usage), version: own.version }
    if (provider === ownProvider) return { nano_usd: 0, version: listVersion }
    const found = listed(usage, model, placeOf(provider, base_url))
    return found === null ? null : { nano_usd: Math.round(found * 1e9), version: listVersion }
  }

/**
 * The package's names of the providers that differ from ours. Its search takes any name with `openai` in it for OpenAI: a
 * server that only speaks its API is known by its URL.
 */
const packageNames: Record<string, string> = { azure_openai: 'azure', xai: 'x-ai' }

const placeOf = (provider: string, base_url: string): Parameters<typeof calcPrice>[2] =>
  provider === 'openai_compatible'
    ? { providerApiUrl: base_url }
    : { providerId: packageNames[provider] ?? provider }

function listed(usage: Usage, model: string, of: Parameters<typeof calcPrice>[2]): number | null {
  // Without other fields that the value may have: the package writes to the console about each.
  const { input_tokens, output_tokens, cache_read_tokens, cache_write_tokens } = usage
  const counted = { input_tokens, output_tokens, cache_read_tokens, cache_write_tokens }
  try {
    return calcPrice(counted, model, of)?.total_price ?? null
  } catch {
    return null // the list has prices of this model, and none for such a use
  }
}

/** A dollar per million tokens is 1000 billionths per token. */
function costBy(
  price: { input: number; output: number; cache_read?: number | undefined; cache_write?: number | undefined },
  { input_tokens, output_tokens, cache_read_tokens, cache_write_tokens }: Usage,
): number {
  const plain = Math.max(0, input_tokens - cache_read_tokens - cache_write_tokens)
  const sum =
    plain * price.input +
    output_tokens * price.output +
    cache_read_tokens * (price.cache_read ?? price.input) +
    cache_write_tokens * (price.cache_write ?? price.input)
  return Math.round(sum * 1000)
}
