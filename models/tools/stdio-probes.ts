import type { McpListing } from '../../lib/mcp-client.ts'
import { type Fault, ProbeFailed, type Stages } from '../../lib/probe-stages.ts'
import { Problem } from '../../lib/problem.ts'
import { ToolFinding } from '../../lib/tool-protocol.ts'
import type { By } from '../acceptance.ts'
import { operationEnds } from '../operation-watch.ts'
import type { OperationDocument } from '../operations.ts'
import { credentialOf } from './credentials.ts'
import { acceptToolProbe, ToolProbe } from './tool-probes.ts'
import type { ToolDocument } from './tools.ts'

// The live list of a server of stdio: a caller waits for the operation that asks it.

/** A microVM starts, the command too, and both may be downloaded. */
const waitsMs = 100_000

/** Notes the stages in `stages`. Throws ProbeFailed, and `probe_under_way` if it takes longer than a caller may wait. */
export async function listOverStdio(by: By, tool: ToolDocument, stages: Stages): Promise<McpListing> {
  stages.set('config', 0)
  await stages.run('credential', () => credentialOf(tool))
  const begun = performance.now()
  const { probe_id, operation_id } = await acceptToolProbe(by, tool)
  const operation = await operationEnds.awaitEnd(by.tenant_id, operation_id, waitsMs)
  if (operation.open) throw new ProbeUnderWay(operation_id)
  const { tenant_id } = tool
  const probe = await ToolProbe.findOne({ _id: probe_id, tenant_id }, { finding_json: 1 }).lean()
  const finding = probe?.finding_json ? ToolFinding.parse(JSON.parse(probe.finding_json)) : null
  if (!finding) throw new ProbeFailed(faultOf(operation))
  const { initialize, list } = finding.spent_ms
  // What is not the server's own time is that of its microVM.
  stages.set('connect', performance.now() - begun - initialize - list)
  stages.set('initialize', initialize)
  stages.set('list', list)
  if (finding.fault) throw new ProbeFailed(finding.fault)
  if (!finding.listing) throw new Error(`the probe ${probe_id} found nothing`)
  return finding.listing
}

/** Why the command was not even asked. */
const faultOf = ({ error, state }: OperationDocument): Fault => ({
  stage: 'connect',
  reason: error?.code ?? state,
  cause: error?.detail ?? 'The probe was cancelled',
  remedy: 'Correct what the cause names, and try again',
})

class ProbeUnderWay extends Problem {
  constructor(operation_id: string) {
    const detail = `The microVM of the tool is not ready after ${waitsMs / 1000} s: send the request again to wait for the same probe`
    super(504, 'probe_under_way', 'The probe is in progress', detail, { extensions: { operation_id } })
  }
}
