import { watchFetch } from '../../lib/outbound-fetch.ts'
import { networkFault, statusFault } from '../../lib/probe-faults.ts'
import { type Fault, ProbeFailed, type Stage, stageNames, Stages } from '../../lib/probe-stages.ts'
import { outbound, urlFaults } from '../outbound.ts'
import { credentialOf } from './credentials.ts'
import { type Definition, originOf } from './definitions.ts'
import { needAllowed, recordTest } from './probes.ts'
import { definition, type ToolDocument, toolOf } from './tools.ts'

// The test of a tool: whether its credential can be right, and whether its server can be reached.

export interface Verdict {
  fault: Fault | null
  stages: Stage[]
  /** Whether the probe took the credential along: only to the tool's own origin. */
  credential_sent: boolean
  http_status: number | null
}

const structural = stageNames.slice(0, 2)
const reaching = stageNames.slice(0, stageNames.indexOf('auth') + 1)

/**
 * Checks the stored definition and the form of its credential, and with a URL also whether that answers. Throws NotFound.
 * The verdict is kept with the tool, unless it is an MCP server, whose list says more, or the URL is at another origin.
 */
export async function testTool(
  by: { tenant_id: string },
  id: string,
  url: string | undefined,
): Promise<Verdict> {
  const tool = await toolOf(by, id)
  const stages = new Stages()
  const isOwn = url === undefined || new URL(url).origin === originOf(definition(tool))
  const reached: Reached = { credential_sent: false, http_status: null }
  let fault: Fault | null = null
  try {
    await check(tool, url, stages, isOwn, reached)
  } catch (error) {
    if (!(error instanceof ProbeFailed)) throw error
    fault = error.fault
  }
  const names = url === undefined && fault?.stage !== 'policy' ? structural : reaching
  const found = { fault, stages: stages.list(names, fault?.stage ?? null) }
  if (tool.kind !== 'mcp' && isOwn && (fault || url !== undefined)) await recordTest(tool, found)
  return { ...found, ...reached }
}

type Reached = Pick<Verdict, 'credential_sent' | 'http_status'>

async function check(
  tool: ToolDocument,
  url: string | undefined,
  stages: Stages,
  isOwn: boolean,
  reached: Reached,
): Promise<void> {
  const of = definition(tool)
  await stages.run('config', () => needUsable(of))
  const { headers } = await stages.run('credential', () => credentialOf(tool))
  if (url === undefined) return
  const sent = isOwn ? headers : {}
  reached.credential_sent = Object.keys(sent).length > 0
  await stages.run('policy', () => needAllowed(url, reached.credential_sent ? of : null))
  reached.http_status = await reach(url, sent, stages)
}

function needUsable({ url }: Definition): void {
  const fault = url === null ? null : outbound().faultOf(url)
  if (fault)
    throw new ProbeFailed({
      stage: 'config',
      reason: fault,
      cause: `The URL of the tool is refused: ${urlFaults[fault]}`,
      remedy: 'Change the URL, or ask the operator to allow this one',
    })
}

const withinMs = 10_000
/** Nothing of the answer is read but its head. */
const mostBytes = 64 * 1024

/** The status of the answer. Any but a denial or a failure of the server means that it was reached. */
async function reach(url: string, headers: Record<string, string>, stages: Stages): Promise<number> {
  const signal = AbortSignal.timeout(withinMs)
  const begun = performance.now()
  const way = watchFetch(outbound(), { origin: new URL(url).origin, headers, mostBytes, signal })
  try {
    const { status } = await way.fetch(url)
    if (status === 401 || status === 403 || status >= 500)
      throw new ProbeFailed(statusFault(status, Object.keys(headers).length > 0))
    stages.set('auth', 0)
    return status
  } catch (error) {
    if (!way.fault) throw error
    const fault = networkFault(way.fault, signal.aborted)
    stages.set(fault.stage, performance.now() - begun)
    throw new ProbeFailed(fault, { cause: error })
  } finally {
    for (const [step, ms] of way.spent) stages.set(step, ms)
    await way.close()
  }
}
