import { createHash } from 'node:crypto'
import type { Client, Tool } from '@modelcontextprotocol/client'

// The list of an MCP server, page by page, held within bounds.

export interface ListedTool {
  name: string
  title: string | null
  description: string | null
  input_schema: Record<string, unknown>
  output_schema: Record<string, unknown> | null
  annotations: Record<string, unknown> | null
}

export interface Listed {
  tools: ListedTool[]
  /** The server has more. */
  truncated: boolean
  /** Of all that a model sees of the tools, in no order: it changes if the server advertises something else. */
  tools_hash: string
}

/** The server names a page that it has named before. */
export class CursorRepeats extends Error {
  override readonly name = 'CursorRepeats'
}

const mostPages = 64

/** Throws what the client throws, and CursorRepeats. */
export async function listTools(
  client: Client,
  mostTools: number,
  redact: <T>(value: T) => T,
): Promise<Listed> {
  const tools: ListedTool[] = []
  const seen = new Set<string>()
  let cursor: string | undefined
  let isMore = client.getServerCapabilities()?.tools !== undefined
  for (let page = 0; isMore && page < mostPages && tools.length < mostTools; page++) {
    const params = cursor === undefined ? {} : { cursor }
    const answer = await client.request({ method: 'tools/list', params })
    tools.push(...answer.tools.map((tool) => redact(listed(tool))))
    cursor = answer.nextCursor
    isMore = cursor !== undefined
    if (cursor === undefined) break
    if (seen.has(cursor)) throw new CursorRepeats('The server repeats a cursor')
    seen.add(cursor)
  }
  const kept = tools.slice(0, mostTools)
  return { tools: kept, truncated: isMore || kept.length < tools.length, tools_hash: hashOf(kept) }
}

const listed = (tool: Tool): ListedTool => ({
  name: tool.name,
  title: tool.title ?? null,
  description: tool.description ?? null,
  input_schema: tool.inputSchema,
  output_schema: tool.outputSchema ?? null,
  annotations: (tool.annotations as Record<string, unknown> | undefined) ?? null,
})

function hashOf(tools: ListedTool[]): string {
  const lines = tools.map((tool) => JSON.stringify(sorted(tool))).toSorted()
  return createHash('sha256').update(lines.join('\n')).digest('hex')
}

/** With the names of all objects in order. */
function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted)
  if (typeof value !== 'object' || value === null) return value
  const entries = Object.entries(value).map(([name, inner]) => [name, sorted(inner)] as const)
  return Object.fromEntries(entries.toSorted(([a], [b]) => (a < b ? -1 : 1)))
}
