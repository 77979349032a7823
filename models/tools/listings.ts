import type { ListedTool } from '../../lib/mcp-tools.ts'
import type { ToolDocument } from './tools.ts'

// What an MCP server listed when it was last asked: by it workflows are checked before they run.

/** One tool of a server. */
export type KnownTool = Pick<ListedTool, 'name' | 'input_schema' | 'output_schema'> & {
  /** Undefined: the list was kept before descriptions were. */
  description?: string | null
}

// As much as an OpenAPI document: lists read whole tools.
const mostBytes = 256 * 1024
/** What a model is shown of a description: providers take no more. */
export const mostDescription = 1_024

/** The list as a tool keeps it; null if that is not all of it, or too much. */
export function keptListing({
  tools,
  truncated,
}: {
  tools: ListedTool[]
  truncated: boolean
}): string | null {
  const known: KnownTool[] = tools.map(({ name, description, input_schema, output_schema }) => ({
    name,
    description: description?.slice(0, mostDescription) ?? null,
    input_schema,
    output_schema,
  }))
  const json = JSON.stringify(known)
  return truncated || Buffer.byteLength(json) > mostBytes ? null : json
}

/** The tools of a server as it last listed them; null if that is not known. */
export const listingOf = ({ listing_json }: Pick<ToolDocument, 'listing_json'>): KnownTool[] | null =>
  listing_json ? (JSON.parse(listing_json) as KnownTool[]) : null
