import { z } from 'zod'
import { acceptBuild, Build, type BuildDocument, buildOf, imageStates } from '../../models/deploy/builds.ts'
import { byOf } from '../accept.ts'
import { logsQuery, sendLogs } from '../compute/observation/logs.ts'
import { ConfigVars } from '../compute/instances.ts'
import { byId, Id, Name, Timestamp, time, timeOrNull } from '../fields.ts'
import { list } from '../list.ts'
import { operation, stream } from '../operation.ts'
import type { OperationsContext } from '../operations.ts'
import { ImageTag, releaseFields } from './application-fields.ts'
import { buildLines } from './build-lines.ts'
import { cancelWork, inDeployServer } from './children.ts'
import { path as serverPath } from './deployments.ts'

const path = `${serverPath}/builds`
const byBuild = z.strictObject({ id: Id, build: Id })

const statuses = ['queued', 'building', 'succeeded', 'failed', 'cancelled'] as const

const BuildView = z
  .strictObject({
    id: Id,
    tenant_id: Id,
    uuid: Id.describe('The same as `id`'),
    deploy_server_id: Id,
    status: z.enum(statuses),
    status_reason: z.string().nullable(),
    operation_id: Id.nullable(),
    artifact_id: Id.nullable().describe('The artifact; null: the image was pushed'),
    artifact: z.string().nullable().describe('The name of the artifact'),
    image: z.string(),
    tag: z.string(),
    dockerfile: z.string().nullable(),
    target: z.string().nullable(),
    build_args: z.record(z.string(), z.string()),
    secret_names: z.array(z.string()),
    timeout_sec: z.int(),
    generated: z
      .string()
      .nullable()
      .describe('What the generated Dockerfile is for; null: the artifact has its own'),
    digest: z.string().nullable(),
    size_bytes: z.int().nullable(),
    image_state: z
      .enum(imageStates)
      .describe(
        'Whether the registry has the image. `kept`: it can be deployed. `leaving`: it is being removed, and may be gone',
      ),
    image_on: z.array(z.string()).describe('The machines whose registries have the image'),
    requested_by: Id.nullable(),
    created_at: Timestamp,
    updated_at: Timestamp,
    started_at: Timestamp.nullable(),
    ended_at: Timestamp.nullable(),
  })
  .meta({ id: 'Build' })
type View = z.output<typeof BuildView>

function statusOf({ status, started_at, artifact_id }: BuildDocument): View['status'] {
  if (artifact_id === null) return 'succeeded'
  if (status === 'creating') return started_at ? 'building' : 'queued'
  return status === 'error' ? 'failed' : status
}

const toView = (build: BuildDocument): View => ({
  id: build._id,
  tenant_id: build.tenant_id,
  uuid: build._id,
  deploy_server_id: build.deploy_server_id,
  status: statusOf(build),
  status_reason: build.status_reason,
  operation_id: build.operation_id,
  artifact_id: build.artifact_id,
  artifact: build.folder,
  image: build.image,
  tag: build.tag,
  dockerfile: build.dockerfile,
  target: build.target,
  build_args: build.build_args,
  secret_names: build.secret_names,
  timeout_sec: build.timeout_sec,
  generated: build.generated,
  digest: build.digest,
  size_bytes: build.size_bytes,
  image_state: build.image_state,
  image_on: build.image_on,
  requested_by: build.requested_by,
  created_at: time(build.created_at),
  updated_at: time(build.updated_at),
  started_at: timeOrNull(build.started_at),
  ended_at: timeOrNull(build.ended_at),
})

const BuildLine = z.object({ time: Timestamp, line: z.string() }).meta({ id: 'BuildLogLine' })

const Secrets = ConfigVars.refine(
  (vars) => Object.keys(vars).length <= 50,
  'must have at most 50 secrets',
).refine((vars) => Object.values(vars).every((value) => !value.includes('\0')), 'must not have a NUL')

const NewBuild = z
  .strictObject({
    artifact_id: Id.optional(),
    artifact: Name.optional().describe('The name of an artifact; its newest ready version is built'),
    image: releaseFields.image,
    tag: ImageTag.default('latest'),
    dockerfile: z
      .string()
      .max(255)
      .regex(/^(?!.*(^|\/)\.\.(\/|$))[\w.][\w./-]*$/, 'must be a path in the artifact')
      .nullable()
      .default(null)
      .describe('A path in the artifact; null: `Dockerfile`, or a generated one if there is none'),
    target: z
      .string()
      .regex(/^[\w][\w.-]{0,127}$/, 'must be the name of a stage')
      .nullable()
      .default(null),
    build_args: ConfigVars.default({}).describe(
      'Build arguments. They are part of the image’s history, so do not put secrets in them',
    ),
    secrets: Secrets.default({}).describe(
      'Secrets for `RUN --mount=type=secret,id=NAME`; the platform deletes them when the build ends',
    ),
    timeout_sec: z.int().min(1).max(7200).default(1800),
  })
  .refine(
    ({ artifact_id, artifact }) => (artifact_id === undefined) !== (artifact === undefined),
    'must have either artifact_id or artifact',
  )

/** The HTTP operations on builds. */
export const makeBuilds = ({ cancel }: OperationsContext) => [
  list({
    path,
    permission: 'deploy_servers:read',
    summary: 'List the builds of a deploy server, and the images pushed to it',
    params: byId,
    model: Build,
    view: BuildView,
    toView,
    stored: { uuid: '_id', artifact: 'folder' },
    scope: inDeployServer,
    without: ['secrets_sealed'],
  }),

  operation({
    method: 'POST',
    path,
    permission: 'deploy_servers:manage',
    summary: 'Build an image from an artifact; applications deploy it by its name and tag',
    params: byId,
    body: NewBuild,
    responses: { 202: BuildView },
    handle: async ({ caller, params: { id }, body: { artifact_id, artifact, ...fields } }) => {
      const by = byOf(caller)
      const from = artifact_id === undefined ? { name: artifact ?? '' } : { id: artifact_id }
      const { document, operation: accepted } = await acceptBuild(by, id, { ...fields, artifact: from })
      return { operation_id: accepted._id, body: toView(document) }
    },
  }),

  operation({
    method: 'GET',
    path: `${path}/{build}`,
    permission: 'deploy_servers:read',
    summary: 'Get a build',
    params: byBuild,
    responses: { 200: BuildView },
    handle: async ({ caller, params }) => toView(await buildOf(caller, params.id, params.build)),
  }),

  operation({
    method: 'POST',
    path: `${path}/{build}/cancel`,
    permission: 'deploy_servers:update',
    summary: 'Cancel a build, and end its builder',
    params: byBuild,
    responses: { 202: BuildView },
    handle: async ({ caller, params }) => {
      const build = await buildOf(caller, params.id, params.build)
      const status = statusOf(build)
      const work = { operation_id: status === 'succeeded' ? null : build.operation_id, status }
      const operation_id = await cancelWork(caller, work, cancel)
      return { operation_id, body: toView(build) }
    },
  }),

  operation({
    method: 'GET',
    path: `${path}/{build}/logs`,
    permission: 'deploy_servers:read',
    summary: 'Get the log of a build, without its secrets, or follow it until the build ends',
    params: byBuild,
    query: z.strictObject(logsQuery),
    responses: { 200: stream('application/x-ndjson', BuildLine) },
    handle: async ({ caller, params, query, http: { response } }) => {
      const build = await buildOf(caller, params.id, params.build)
      const gone = new AbortController()
      response.once('close', () => gone.abort())
      await sendLogs(buildLines(build, query, gone.signal), response, {
        follow: query.follow,
        timestamps: true,
      })
    },
  }),
]
