import type { McpListing } from '../../lib/mcp-client.ts'
import { probeMcp } from '../../lib/mcp-probe.ts'
import { type Fault, ProbeFailed, type Stage, stageNames, Stages } from '../../lib/probe-stages.ts'
import { Problem } from '../../lib/problem.ts'
import { makeRedactor } from '../../lib/redact.ts'
import type { By } from '../acceptance.ts'
import { outbound, urlFaults } from '../outbound.ts'
import { placeFault } from './changes.ts'
import { credentialOf } from './credentials.ts'
import type { Definition } from './definitions.ts'
import { keptListing } from './listings.ts'
import type { Probe } from './probe-records.ts'
import { listOverStdio } from './stdio-probes.ts'
import { definition, Tool, type ToolDocument, toolOf } from './tools.ts'

// The live list of an MCP server's tools.

export interface ProbedTools extends McpListing {
  stages: Stage[]
  /** Whether the server advertised something else at the last probe. Null: there was none. */
  changed: boolean | null
  at: Date
}

/** The server of a tool cannot be probed. All of it is in our words. */
export class ProbeProblem extends Problem {
  constructor({ stage, reason, cause, remedy, authorization_servers }: Fault, stages: Stage[]) {
    const login = authorization_servers ? { authorization_servers } : {}
    super(502, 'tool_probe_failed', 'The server of the tool cannot be probed', cause, {
      extensions: { stage, reason, cause, remedy, ...login, stages },
    })
  }
}

/**
 * Throws NotFound, `not_an_mcp_tool`, ProbeProblem, and of stdio `probe_under_way`. What it finds is kept with the tool.
 */
export async function probeTools(by: By, id: string): Promise<ProbedTools> {
  const tool = await toolOf(by, id)
  if (tool.kind !== 'mcp')
    throw new Problem(
      409,
      'not_an_mcp_tool',
      'Only an MCP server lists tools',
      `The tool is of the kind ${tool.kind}`,
    )
  const stages = new Stages()
  const at = new Date()
  const former = tool.last_probe?.tools_hash ?? null
  try {
    const listing = await (tool.transport === 'stdio' ? listOverStdio(by, tool, stages) : probe(tool, stages))
    const passed = stages.list(stageNames)
    const found: Probe = { ...fieldsOf(listing), by: 'mcp_tools', at, stages: passed, fault: null }
    await record(tool, found, { listing_json: keptListing(listing) })
    return { ...listing, stages: passed, at, changed: former === null ? null : former !== listing.tools_hash }
  } catch (error) {
    if (!(error instanceof ProbeFailed)) throw error
    const { fault } = error
    const passed = stages.list(stageNames, fault.stage)
    // The hash stays: a later list is compared with the last one that there was.
    await record(tool, { ...noList, tools_hash: former, by: 'mcp_tools', at, stages: passed, fault })
    throw new ProbeProblem(fault, passed)
  }
}

async function probe(tool: ToolDocument, stages: Stages): Promise<McpListing> {
  const of = definition(tool)
  const { url, transport } = await stages.run('config', () => needRemote(of))
  const { headers, secrets } = await stages.run('credential', () => credentialOf(tool))
  await stages.run('policy', () => needAllowed(url, Object.keys(headers).length > 0 ? of : null))
  return probeMcp({ url, transport, headers, redact: makeRedactor(secrets) }, outbound(), stages)
}

/** The tools of a server over HTTP, asked now. Keeps nothing. Throws ProbeFailed. */
export const listedNow = async (tool: ToolDocument): Promise<McpListing['tools']> =>
  (await probe(tool, new Stages())).tools

function needRemote({ url, transport }: Definition) {
  if (transport === 'stdio' || transport === null || url === null) throw new Error('the tool has no URL')
  return { url, transport }
}

/** `carried`: the definition whose credential goes there. Throws ProbeFailed. */
export function needAllowed(url: string, carried: Definition | null): void {
  const fault = outbound().faultOf(url)
  if (fault)
    throw new ProbeFailed({
      stage: 'policy',
      reason: fault,
      cause: `The URL is refused: ${urlFaults[fault]}`,
      remedy: 'Use a public address, or ask the operator to allow this one',
    })
  const clear = carried && placeFault(carried)
  if (clear)
    throw new ProbeFailed({
      stage: 'policy',
      reason: 'not_encrypted',
      cause: `The URL ${clear}`,
      remedy: 'Use https',
    })
}

const noList = {
  transport: null,
  protocol_version: null,
  server: null,
  tools_count: null,
  truncated: null,
  tools_hash: null,
}

const fieldsOf = (listing: McpListing) => ({
  transport: listing.transport,
  protocol_version: listing.protocol_version,
  server: listing.server,
  tools_count: listing.tools.length,
  truncated: listing.truncated,
  tools_hash: listing.tools_hash,
})

/** Keeps what a probe found, unless the tool is another one by now. */
async function record(
  { _id, tenant_id, version }: ToolDocument,
  last_probe: Probe,
  listed: Partial<Pick<ToolDocument, 'listing_json'>> = {},
): Promise<void> {
  const status = last_probe.fault ? 'failing' : 'ok'
  const set = { last_probe, status, ...listed } as const
  await Tool.updateOne({ _id, tenant_id, version }, { $set: set }, { timestamps: false })
}

/** Keeps the verdict of a test in the same place. */
export const recordTest = (tool: ToolDocument, found: Pick<Probe, 'stages' | 'fault'>): Promise<void> =>
  record(tool, { ...noList, ...found, by: 'test', at: new Date() })
