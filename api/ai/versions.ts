import { z } from 'zod'
import { hashOf } from '../../lib/ai/canonical.ts'
import { NotFound, PermissionDenied } from '../../lib/problem.ts'
import { aiWorkflowOf, draftOf } from '../../models/ai/ai-workflows.ts'
import { checkSpec, publish } from '../../models/ai/publication.ts'
import { AiWorkflowVersion, type UseKind, versionNumbered } from '../../models/ai/versions.ts'
import type { Permission } from '../../models/identity/roles.ts'
import { byId, Id } from '../fields.ts'
import { list } from '../list.ts'
import { type Caller, operation } from '../operation.ts'
import { Draft, path, toVersionSummary, toVersionView, VersionSummaryView, VersionView } from './views.ts'

const authorOf = ({ tenant_id, permissions }: Caller) => ({
  tenant_id,
  asks_providers: permissions.has('connectors:use'),
})

/** Who runs a workflow acts on all that it uses, so its publisher must be allowed to. */
const needed: Record<UseKind, Permission> = {
  connector: 'connectors:use',
  tool: 'tools:read',
  collection: 'rag:read',
  workflow: 'workflows:read',
}
const mayUse =
  ({ permissions }: Caller) =>
  (kinds: Set<UseKind>): void => {
    for (const kind of kinds) if (!permissions.has(needed[kind])) throw new PermissionDenied(needed[kind])
  }

const ValidView = z
  .strictObject({
    valid: z.literal(true),
    spec_sha256: z.string().describe('SHA-256 of the canonical JSON of what was validated'),
    nodes: z.strictObject({}).describe('Empty: no node has errors'),
  })
  .meta({ id: 'WorkflowValidation' })

/** The HTTP operations that check and publish specs. */
export const aiWorkflowVersions = [
  operation({
    method: 'POST',
    path: `${path}/{id}/validate`,
    permission: 'workflows:update',
    summary: 'Validate the draft, or a given spec, and save nothing; a 422 lists all errors by node',
    params: byId,
    body: z.strictObject({ spec: Draft.optional() }).default({}),
    responses: { 200: ValidView },
    async handle({ caller, params, body }) {
      const workflow = await aiWorkflowOf(caller, params.id)
      const spec = body.spec ?? draftOf(workflow)
      await checkSpec(authorOf(caller), workflow, spec)
      return { valid: true as const, spec_sha256: hashOf(spec), nodes: {} }
    },
  }),

  operation({
    method: 'POST',
    path: `${path}/{id}/publish`,
    permission: 'workflows:publish',
    summary: 'Publish the draft as the next version; 200 if it equals the latest version',
    params: byId,
    responses: { 200: VersionSummaryView, 201: VersionSummaryView },
    revised: true,
    async handle({ caller, params, revisions }) {
      const { version, isNew } = await publish(authorOf(caller), params.id, revisions, mayUse(caller))
      const body = toVersionSummary(version)
      return isNew ? { location: `${path}/${params.id}/versions/${version.version}`, body } : body
    },
  }),

  list({
    path: `${path}/{id}/versions`,
    permission: 'workflows:read',
    summary: 'List the published versions of an AI workflow',
    params: byId,
    model: AiWorkflowVersion,
    view: VersionSummaryView,
    toView: toVersionSummary,
    scope: async (caller, { id }) => ({
      tenant_id: caller.tenant_id,
      workflow_id: (await aiWorkflowOf(caller, id))._id,
    }),
  }),

  operation({
    method: 'GET',
    path: `${path}/{id}/versions/{version}`,
    permission: 'workflows:read',
    summary: 'Get a published version with its spec',
    params: z.strictObject({ id: Id, version: z.string() }),
    responses: { 200: VersionView },
    async handle({ caller, params }) {
      const workflow = await aiWorkflowOf(caller, params.id)
      if (!/^[1-9]\d{0,8}$/.test(params.version)) throw new NotFound('version')
      return toVersionView(await versionNumbered(workflow, Number(params.version)))
    },
  }),
]
