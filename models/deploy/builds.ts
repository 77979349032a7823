import mongoose, { Schema } from 'mongoose'
import { newId } from '../../lib/ids.ts'
import { InvalidInput, NotFound, StateConflict } from '../../lib/problem.ts'
import { type By, create } from '../acceptance.ts'
import { transaction } from '../database.ts'
import type { Accepted } from '../operations.ts'
import { lockParent } from '../parents.ts'
import { defineResource, mine, type ResourceDocument, resourceSchema } from '../resources.ts'
import { sealedField } from '../sealed-fields.ts'
import { sealSecret, unsealSecret } from '../secrets.ts'
import { type StateOf, states } from '../states.ts'
import { everyTenant } from '../tenant-scope.ts'
import { Artifact, type ArtifactDocument } from './artifacts.ts'
import { deployServerResource } from './deploy-servers.ts'
import type { RegistryNode } from './registries.ts'

export const buildStates = states({
  creating: {},
  succeeded: {},
  failed: {},
  cancelled: {},
  // Something of it may be left on the worker.
  error: {},
})

export const imageStates = ['none', 'kept', 'leaving', 'gone'] as const

/** An image, and the build that made it from an artifact; or an image that was pushed (pushed-images.ts). */
export interface BuildDocument extends ResourceDocument<StateOf<typeof buildStates>> {
  deploy_server_id: string
  /** Null: the image was pushed. */
  artifact_id: string | null
  /** The name of the artifact. */
  folder: string | null
  image: string
  tag: string
  /** A path in the artifact. Null: `Dockerfile`, or a generated one if there is none. */
  dockerfile: string | null
  target: string | null
  build_args: Record<string, string>
  timeout_sec: number
  secret_names: string[]
  /** The secrets, sealed, until the build ends; `-` for none. */
  secrets_sealed: string
  requested_by: string | null
  started_at: Date | null
  ended_at: Date | null
  /** What the generated Dockerfile is for. Null: the artifact has its own. */
  generated: string | null
  digest: string | null
  /** The digests of an index’s manifests: they stay as long as it does. */
  parts?: string[]
  size_bytes: number | null
  /** The image in the registry. `leaving`: it is to be removed; there may be none. */
  image_state: (typeof imageStates)[number]
  /** The machines whose registries have the image. */
  image_on: RegistryNode[]
  /** When a deployment last took the image. Its change keeps the image from being removed in the same moment. */
  last_taken_at: Date | null
  /** Of its log, which has ended. Absent: not measured yet. */
  log_bytes?: number
  /** Nothing but the name of its image is still needed (old-builds.ts). */
  name_only?: true
}

const { Mixed } = Schema.Types
const optional = { type: String, default: null }
const date = { type: Date, default: null }
const schema = resourceSchema<BuildDocument>(
  {
    deploy_server_id: { type: String, required: true },
    artifact_id: optional,
    folder: optional,
    image: { type: String, required: true },
    tag: { type: String, required: true },
    dockerfile: optional,
    target: optional,
    build_args: { type: Mixed, default: {} },
    timeout_sec: { type: Number, required: true },
    secret_names: { type: [String], default: [] },
    secrets_sealed: { type: String, default: '-' },
    requested_by: optional,
    started_at: date,
    ended_at: date,
    generated: optional,
    digest: optional,
    parts: { type: [String], default: [] },
    size_bytes: { type: Number, default: null },
    image_state: { type: String, default: 'none' },
    image_on: { type: [String], default: [] },
    last_taken_at: date,
    log_bytes: Number,
    name_only: Boolean,
  },
  buildStates,
  'builds',
  { within: 'deploy_server_id' },
)
schema.index({ deploy_server_id: 1, image: 1, tag: 1, created_at: -1 })
export const Build = mongoose.model<BuildDocument>('Build', schema)
export const buildResource = defineResource('build', Build, buildStates)

const contextOf = (tenantId: string): string => `builds.secrets:${tenantId}`
sealedField(Build, 'secrets_sealed', ({ tenant_id }) => contextOf(tenant_id))

export const openBuildSecrets = async ({ tenant_id, secrets_sealed }: BuildDocument) =>
  secrets_sealed === '-' ? {} : unsealSecret<Record<string, string>>(secrets_sealed, contextOf(tenant_id))

export interface NewBuild
  extends Pick<BuildDocument, 'image' | 'tag' | 'dockerfile' | 'target' | 'build_args' | 'timeout_sec'> {
  /** The artifact, or the newest one of this name that is ready. */
  artifact: { id: string } | { name: string }
  secrets: Record<string, string>
}

/** Accepts a build. Throws NotFound, InvalidInput (no such artifact), StateConflict unless the artifact is ready. */
export const acceptBuild = (
  by: By,
  deployServerId: string,
  { artifact: asked, secrets, ...fields }: NewBuild,
): Promise<Accepted<BuildDocument>> =>
  transaction(async () => {
    const { tenant_id } = by
    const server = await lockParent(deployServerResource, tenant_id, deployServerId)
    if (server.status === 'creating') throw new StateConflict('build an image', server.status)
    const artifact = await artifactOf(tenant_id, deployServerId, asked)
    const secret_names = Object.keys(secrets)
    return create(by, buildResource, {
      fields: {
        ...fields,
        name: `${fields.image.slice(-40)}-${newId().slice(-12)}`,
        tags: {},
        deploy_server_id: deployServerId,
        artifact_id: artifact._id,
        folder: artifact.folder,
        secret_names,
        secrets_sealed: secret_names.length ? await sealSecret(secrets, contextOf(tenant_id)) : '-',
        requested_by: by.id,
        started_at: null,
        ended_at: null,
        generated: null,
        digest: null,
        parts: [],
        size_bytes: null,
        image_state: 'none',
        image_on: [],
        last_taken_at: null,
      },
    })
  }, by.tenant_id)

async function artifactOf(
  tenant_id: string,
  deploy_server_id: string,
  asked: NewBuild['artifact'],
): Promise<ArtifactDocument> {
  const wanted: Partial<ArtifactDocument> =
    'id' in asked ? { _id: asked.id } : { folder: asked.name, status: 'ready' }
  const artifact = await Artifact.findOne({ ...wanted, tenant_id, deploy_server_id })
    .sort({ created_at: -1 })
    .lean()
  if (!artifact) {
    const pointer = 'id' in asked ? '/artifact_id' : '/artifact'
    throw new InvalidInput(422, [{ pointer, message: 'no such artifact of the deploy server' }])
  }
  if (artifact.status !== 'ready') throw new StateConflict('build from the artifact', artifact.status)
  return artifact
}

/** The build of this deploy server of the caller's tenant. Throws NotFound. */
export async function buildOf(
  caller: { tenant_id: string },
  deployServerId: string,
  id: string,
): Promise<BuildDocument> {
  const build = await mine(buildResource, caller, id)
  if (build.deploy_server_id !== deployServerId) throw new NotFound('build')
  return build
}

/** The build, for the host that has its worker: only while it is open. Throws NotFound. */
export async function openBuild(deploy_server_id: string, _id: string): Promise<BuildDocument> {
  const build = await Build.findOne({ _id, deploy_server_id, status: 'creating' })
    .setOptions(everyTenant)
    .lean()
  if (!build) throw new NotFound('build')
  return build
}
