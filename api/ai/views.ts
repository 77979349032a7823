import { z } from 'zod'
import { type CanaryDecision, canaryReasons } from '../../lib/ai/canary-policy.ts'
import { draftFault } from '../../lib/ai/validate-form.ts'
import { type AiWorkflowDocument, aiWorkflowStates, draftOf } from '../../models/ai/ai-workflows.ts'
import { standingOf } from '../../models/ai/canary-looks.ts'
import {
  type AiDeploymentDocument,
  aiDeploymentRoles,
  aiDeploymentStates,
  deploymentsOf,
} from '../../models/ai/deployments.ts'
import { type AiScheduleDocument, scheduleOf } from '../../models/ai/run-schedules.ts'
import { type AiWorkflowVersionDocument, specOf, useKinds } from '../../models/ai/versions.ts'
import { type AiWebhookDocument, overlapOf, webhookOf } from '../../models/ai/webhooks.ts'
import { Id, Timestamp, time, timeOrNull } from '../fields.ts'

export const path = '/api/v1/workflows'

const Json = z.record(z.string(), z.unknown())

/** A draft may be unfinished or wrong; only bounds keep it from being stored. */
export const Draft = z
  .custom<Record<string, unknown>>()
  .check((context) => {
    const fault = draftFault(context.value)
    if (fault) context.issues.push({ code: 'custom', input: '', path: [], message: fault[1] })
  })
  .meta({ type: 'object', additionalProperties: {} })
  .describe('A spec (docs/ai-workflows.md). It may be unfinished: only `validate` and `publish` check it')

export const shownOfEvals = {
  require_eval_pass: z
    .boolean()
    .describe('Whether a canary is promoted only after its eval cases have passed'),
  case_set_sha256: z
    .string()
    .nullable()
    .describe('SHA-256 of the canonical JSON of all its eval cases; null: it has none'),
}

const shown = {
  id: Id,
  tenant_id: Id,
  name: z.string(),
  description: z.string(),
  tags: z.record(z.string(), z.string()),
  status: z.enum(aiWorkflowStates).describe('`draft`: no version is published yet'),
  revision: z
    .int()
    .describe('The number of changes of name, description, tags and draft; If-Match refers to it'),
  spec_sha256: z.string().describe('SHA-256 of the draft’s canonical JSON (RFC 8785)'),
  latest_version: z.int().nullable().describe('The version published last'),
  latest_sha256: z
    .string()
    .nullable()
    .describe('SHA-256 of that version; if it equals `spec_sha256`, the draft has not changed since'),
  ...shownOfEvals,
  created_at: Timestamp,
  updated_at: Timestamp,
}

/** In lists: without the draft, which may be large. */
export const WorkflowSummaryView = z.strictObject(shown).meta({ id: 'WorkflowSummary' })

/** Of a runner. */
export const RunnerCores = z.number().min(0.1).max(64)
export const RunnerMemory = z.int().min(160).max(65_536)

const shownOfDeployment = {
  id: Id,
  workflow_id: Id,
  role: z
    .enum(aiDeploymentRoles)
    .describe('`former`: it was replaced, and ends once its open runs have ended'),
  version: z.int().min(1),
  spec_sha256: z.string(),
  status: z.enum(aiDeploymentStates.all).describe('`ready`: its runner takes work'),
  status_reason: z.string().nullable(),
  operation_id: Id.nullable().describe('The open operation'),
  cpu_cores: z.number(),
  memory_mib: z.int(),
  created_at: Timestamp,
}
export const DeploymentView = z.strictObject(shownOfDeployment).meta({ id: 'WorkflowDeployment' })

const ratio = z.number().nullable()
export const CanaryView = z
  .strictObject({
    ...shownOfDeployment,
    weight: z.number().describe('The percentage of new runs'),
    bounds: z.strictObject({ p95_ratio: ratio, cost_ratio: ratio }),
    since: Timestamp.describe('When the canary last changed; runs that ended before do not count'),
    decision: z
      .strictObject({
        verdict: z.enum(['hold', 'back']).describe('`back`: its runs go to the primary'),
        reason: z.enum(canaryReasons),
        message: z.string(),
        at: Timestamp.nullable().describe(
          'When its weight became 0 because of the decision; null: it did not',
        ),
      })
      .nullable()
      .describe('The decision of the policy; null: the canary takes no runs, or has just changed'),
  })
  .meta({ id: 'WorkflowCanary' })

export const toDeployment = (deployment: AiDeploymentDocument): z.output<typeof DeploymentView> => ({
  id: deployment._id,
  workflow_id: deployment.workflow_id,
  role: deployment.role,
  version: deployment.version,
  spec_sha256: deployment.spec_sha256,
  status: deployment.status,
  status_reason: deployment.status_reason,
  operation_id: deployment.operation_id,
  cpu_cores: deployment.cpu_cores,
  memory_mib: deployment.memory_mib,
  created_at: time(deployment.created_at),
})

/** `standing`: what the policy says of it now. */
export function toCanary(
  deployment: AiDeploymentDocument,
  standing: CanaryDecision | null = null,
): z.output<typeof CanaryView> {
  const { canary } = deployment
  if (!canary) throw new Error(`the deployment ${deployment._id} is no canary`)
  const { weight, bounds, since, sent_back } = canary
  const decision = sent_back ?? standing
  return {
    ...toDeployment(deployment),
    weight,
    bounds: { p95_ratio: bounds.p95_ratio, cost_ratio: bounds.cost_ratio },
    since: time(since),
    decision: decision && {
      verdict: decision.verdict,
      reason: decision.reason,
      message: decision.message,
      at: timeOrNull(sent_back?.at ?? null),
    },
  }
}

export const shownOfWebhook = {
  secret_hint: z.string().describe('The last four characters of the secret'),
  former_until: Timestamp.nullable().describe(
    'When the former secret stops being valid; null: there is none',
  ),
  rotated_at: Timestamp,
}
const WebhookView = z.strictObject(shownOfWebhook).meta({ id: 'WorkflowWebhook' })

export const toWebhook = (webhook: AiWebhookDocument): z.output<typeof WebhookView> => ({
  secret_hint: webhook.secret_hint,
  former_until: timeOrNull(overlapOf(webhook)),
  rotated_at: time(webhook.rotated_at),
})

export const ScheduleView = z
  .strictObject({
    frequency: z.string().describe('A cron expression of five fields'),
    timezone: z.string(),
    input: z.unknown().describe('The input of each run'),
    canary_key: z.string().nullable(),
    overlaps: z.boolean().describe('Whether a run begins while the previous one is open'),
    next_at: Timestamp.nullable().describe('When it runs next; null: never'),
    last: z
      .strictObject({
        due_at: Timestamp,
        run_id: Id.nullable().describe('The run; null: it was skipped'),
        skipped: z
          .strictObject({ code: z.string(), message: z.string() })
          .nullable()
          .describe('Why it was skipped'),
      })
      .nullable()
      .describe('The run that was due last; null: none yet'),
  })
  .meta({ id: 'WorkflowSchedule' })

export const toSchedule = (schedule: AiScheduleDocument): z.output<typeof ScheduleView> => ({
  frequency: schedule.frequency,
  timezone: schedule.timezone,
  input: JSON.parse(schedule.input_json) as unknown,
  canary_key: schedule.canary_key,
  overlaps: schedule.overlaps,
  next_at: timeOrNull(schedule.next_at),
  last: schedule.last && {
    due_at: time(schedule.last.due_at),
    run_id: schedule.last.run_id,
    skipped: schedule.last.skipped && {
      code: schedule.last.skipped.code,
      message: schedule.last.skipped.message,
    },
  },
})

export const WorkflowView = z
  .strictObject({
    ...shown,
    deployment: DeploymentView.nullable().describe(
      'The primary deployment; null: the workflow is not deployed',
    ),
    canary: CanaryView.nullable(),
    former_deployments: z
      .array(DeploymentView)
      .describe('Replaced deployments, until their open runs have ended'),
    webhook: WebhookView.nullable().describe('The webhook; null: it has no secret yet'),
    schedule: ScheduleView.nullable().describe('The schedule; null: there is none'),
    spec: Json.describe('The draft'),
  })
  .meta({ id: 'Workflow' })

export const toSummary = (workflow: AiWorkflowDocument): z.output<typeof WorkflowSummaryView> => ({
  id: workflow._id,
  tenant_id: workflow.tenant_id,
  name: workflow.name,
  description: workflow.description,
  tags: workflow.tags,
  status: workflow.status,
  revision: workflow.revision,
  spec_sha256: workflow.spec_sha256,
  latest_version: workflow.latest_version,
  latest_sha256: workflow.latest_sha256,
  require_eval_pass: workflow.require_eval_pass,
  case_set_sha256: workflow.case_set_sha256,
  created_at: time(workflow.created_at),
  updated_at: time(workflow.updated_at),
})

export async function toView(workflow: AiWorkflowDocument): Promise<z.output<typeof WorkflowView>> {
  const { tenant_id, _id } = workflow
  const [deployments, webhook, schedule] = await Promise.all([
    deploymentsOf(tenant_id, _id),
    webhookOf(tenant_id, _id),
    scheduleOf(tenant_id, _id),
  ])
  const [primary, canary] = (['primary', 'canary'] as const).map((role) =>
    deployments.find((one) => one.role === role),
  )
  return {
    ...toSummary(workflow),
    deployment: primary ? toDeployment(primary) : null,
    canary: canary ? toCanary(canary, await standingOf(canary)) : null,
    former_deployments: deployments.filter(({ role }) => role === 'former').map(toDeployment),
    webhook: webhook && toWebhook(webhook),
    schedule: schedule && toSchedule(schedule),
    spec: draftOf(workflow),
  }
}

const shownOfVersion = {
  workflow_id: Id,
  version: z.int().min(1),
  spec_sha256: z.string().describe('SHA-256 of the spec’s canonical JSON (RFC 8785)'),
  created_at: Timestamp,
}

export const VersionSummaryView = z.strictObject(shownOfVersion).meta({ id: 'WorkflowVersionSummary' })

export const VersionView = z
  .strictObject({
    ...shownOfVersion,
    uses: z
      .array(
        z.strictObject({
          kind: z.enum(useKinds),
          reference: z.string().describe('The name in the spec'),
          id: Id.nullable().describe('Null: the provider’s default connector at the time of the run'),
          version: z
            .int()
            .nullable()
            .describe('The version of a workflow; null: the latest published version at the time of the run'),
        }),
      )
      .describe('The tenant’s resources that the spec names'),
    spec: Json,
  })
  .meta({ id: 'WorkflowVersion' })

export const toVersionSummary = (
  version: AiWorkflowVersionDocument,
): z.output<typeof VersionSummaryView> => ({
  workflow_id: version.workflow_id,
  version: version.version,
  spec_sha256: version.spec_sha256,
  created_at: time(version.created_at),
})

export const toVersionView = (version: AiWorkflowVersionDocument): z.output<typeof VersionView> => ({
  ...toVersionSummary(version),
  uses: version.uses.map(({ kind, reference, id, version: number }) => ({
    kind,
    reference,
    id,
    version: number,
  })),
  spec: specOf(version),
})
