import { CallFault, type OfferedTool } from '../../lib/runner-calls.ts'
import { needCallable, orCallFault } from './calls.ts'
import { credentialOf } from './credentials.ts'
import { documentOf } from './documents.ts'
import { type KnownTool, listingOf, mostDescription } from './listings.ts'
import { inputSchemaOf, operationIdsIn, operationIn } from './openapi.ts'
import { listedNow } from './probes.ts'
import { definition, type ToolDocument } from './tools.ts'

// What a model is told of tools that it may call.

/** A tool as its node names it. */
export interface NamedTool {
  tool: ToolDocument
  /** Of a server's tools or an API's operations; null: all of them. */
  name: string | null
}

const most = { tools: 128, bytes: 256 * 1024 }
type Offer = Pick<OfferedTool, 'name' | 'description' | 'input_schema'>

/** Throws CallFault: a tool is gone, cannot be asked, or there are too many. */
export async function offersOf(
  named: NamedTool[],
  withinMs: number,
  signal: AbortSignal,
): Promise<OfferedTool[]> {
  const offered: OfferedTool[] = []
  const taken = new Set<string>()
  for (const [at, one] of named.entries()) {
    for (const offer of await offersOfOne(one, withinMs, signal)) {
      const description = offer.description.slice(0, mostDescription)
      const input_schema = shownSchema(offer.input_schema)
      const shown = shownName(offer.name ?? one.tool.name, taken)
      offered.push({ at, name: offer.name, shown, description, input_schema })
    }
  }
  if (offered.length > most.tools || JSON.stringify(offered).length > most.bytes)
    throw new CallFault(
      'too_many_tools',
      `The node offers more than ${most.tools} tools, or their descriptions have more than ${most.bytes / 1024} KiB`,
      { permanent: true },
    )
  return offered
}

/** As providers take it: with `properties`, and without the name of its dialect. */
function shownSchema(given: Offer['input_schema']): Offer['input_schema'] {
  const { $schema: _, ...schema } = given
  return 'properties' in schema ? schema : { ...schema, properties: {} }
}

/** The answer’s own name in an API is not for tools (activities/runner/llm.ts). */
const reserved = 'answer'

/** A name that providers take, and no other tool of the node has. */
function shownName(name: string, taken: Set<string>): string {
  const base = name.replaceAll(/[^\w-]/g, '_').slice(0, 60) || 'tool'
  let shown = base
  for (let n = 2; shown === reserved || taken.has(shown); n++) shown = `${base}_${n}`
  taken.add(shown)
  return shown
}

async function offersOfOne(
  { tool, name }: NamedTool,
  withinMs: number,
  signal: AbortSignal,
): Promise<Offer[]> {
  const of = definition(tool)
  needCallable(of)
  if (of.kind === 'http')
    return [
      { name: null, description: tool.description, input_schema: of.input_schema ?? { type: 'object' } },
    ]
  return of.kind === 'mcp' ? ofServer(tool, name) : ofDocument(tool, name, withinMs, signal)
}

/** As the server listed them last; it is asked now if that is not known. */
async function ofServer(tool: ToolDocument, name: string | null): Promise<Offer[]> {
  const known = listingOf(tool)
  // A list that was kept without descriptions is asked for again.
  const isWhole = known?.every(({ description }) => description !== undefined) ?? false
  const listed: KnownTool[] = isWhole && known ? known : await listedNow(tool).catch(orCallFault)
  const wanted = name === null ? listed : listed.filter((one) => one.name === name)
  if (name !== null && wanted.length === 0)
    throw new CallFault('tool_missing', `The server has no tool ${name}`, { permanent: true })
  return wanted.map((one) => ({
    name: one.name,
    description: one.description ?? '',
    input_schema: one.input_schema,
  }))
}

async function ofDocument(
  tool: ToolDocument,
  name: string | null,
  withinMs: number,
  signal: AbortSignal,
): Promise<Offer[]> {
  const { headers } = await credentialOf(tool).catch(orCallFault)
  const { document } = await documentOf(definition(tool), headers, { withinMs, signal }).catch(orCallFault)
  const ids = name === null ? operationIdsIn(document).slice(0, most.tools + 1) : [name]
  return ids.map((id) => {
    const operation = operationIn(document, id)
    return { name: id, description: operation.description, input_schema: inputSchemaOf(document, operation) }
  })
}
