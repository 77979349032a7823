import { AiWorkflowVersion } from './ai/versions.ts'
import { AiWorkflow } from './ai/ai-workflows.ts'
import { LogTotal } from './compute/log-totals.ts'
import { Connector } from './connectors/connectors.ts'
import { backupBytesOf } from './deploy/backup-quota.ts'
import { DeployServer } from './deploy/deploy-servers.ts'
import { forEachLimit, type LimitName } from './identity/limits.ts'
import type { TenantDocument } from './identity/tenants.ts'
import { monthLedgerOf, monthOf } from './llm/ledgers.ts'
import { CaTrust } from './network/ca-trusts.ts'
import { Certificate } from './network/certificates.ts'
import { LoadBalancer } from './network/load-balancers.ts'
import { Subnet } from './network/subnets.ts'
import { Vpc } from './network/vpcs.ts'
import { documentSumsOf } from './retrieval/document-acceptance.ts'
import { Tool } from './tools/tools.ts'

/** How much of a limit is used, and how much more is reserved by calls of models that are under way. */
export interface LimitUse {
  used: number
  reserved: number
}

const none = { tokens: 0, open: {} as Record<string, number> }

/**
 * What counts against each of a tenant's limits, as the checks of acceptance count it. Null for a limit that
 * holds for each of several things, such as VMs per VPC.
 */
export async function limitUseOf({
  _id: tenant_id,
  usage,
}: TenantDocument): Promise<Record<LimitName, LimitUse | null>> {
  const its = { tenant_id }
  const month = (await monthLedgerOf(tenant_id, monthOf(new Date()))) ?? none
  const underWay = Object.values(month.open).reduce((sum, tokens) => sum + tokens, 0)
  const documents = await documentSumsOf(tenant_id)
  const used: Partial<Record<LimitName, number>> = {
    max_archive_gib: gibOf((await LogTotal.findOne(its).lean())?.stored_bytes ?? 0),
    max_backup_gib: gibOf(await backupBytesOf(tenant_id)),
    // The limit holds for certificates and for CA trusts, each by themselves.
    max_certificates: Math.max(await Certificate.countDocuments(its), await CaTrust.countDocuments(its)),
    max_connectors: await Connector.countDocuments(its),
    max_deploy_servers: await DeployServer.countDocuments(its),
    max_load_balancers: await LoadBalancer.countDocuments(its),
    max_rag_documents: documents.documents,
    max_rag_gib: gibOf(documents.bytes),
    max_subnets: await Subnet.countDocuments(its),
    max_tools: await Tool.countDocuments(its),
    max_vpcs: await Vpc.countDocuments(its),
    max_workflow_versions: await AiWorkflowVersion.countDocuments(its),
    max_workflows: await AiWorkflow.countDocuments(its),
  }
  return forEachLimit((name, { sum }) => {
    if (sum) return { used: usage[sum.of] / sum.units, reserved: 0 }
    if (name === 'max_llm_tokens_month') return { used: month.tokens - underWay, reserved: underWay }
    const count = used[name]
    return count === undefined ? null : { used: count, reserved: 0 }
  })
}

/** With three decimals: somebody reads it. */
const gibOf = (bytes: number): number => Math.round((bytes / 1024 ** 3) * 1000) / 1000
