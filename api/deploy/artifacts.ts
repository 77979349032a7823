import { z } from 'zod'
import { InvalidInput, Problem } from '../../lib/problem.ts'
import { type ArtifactDocument, acceptArtifact, artifactOf } from '../../models/deploy/artifacts.ts'
import { acceptUpload, uploadAtMost } from '../../models/deploy/uploads.ts'
import { deployServerResource } from '../../models/deploy/deploy-servers.ts'
import { mine } from '../../models/resources.ts'
import { byOf } from '../accept.ts'
import { byId, Id, Name, Timestamp, time } from '../fields.ts'
import { operation } from '../operation.ts'
import type { OperationsContext } from '../operations.ts'
import { path as serverPath } from './deployments.ts'

const ArtifactView = z
  .strictObject({
    id: Id,
    tenant_id: Id,
    uuid: Id.describe('The same as `id`'),
    deploy_server_id: Id,
    name: z.string().describe('The name of the folder'),
    status: z.enum(['staging', 'pushing', 'ready', 'failed']),
    status_reason: z.string().nullable(),
    operation_id: Id.nullable(),
    size_bytes: z.int(),
    sha256: z.string().nullable().describe('SHA-256 of the archive; null until it is known'),
    upload_url: z
      .string()
      .nullable()
      .describe(
        'The URL to which to send an archive in parts. It needs no other token, and is shown only once',
      ),
    worker: z.string().nullable().describe('The name of the machine that has the folder'),
    path: z.string().nullable().describe('The folder on the worker, when it is ready'),
    files: z.int().nullable(),
    unpacked_bytes: z.int().nullable(),
    created_at: Timestamp,
    updated_at: Timestamp,
  })
  .meta({ id: 'Artifact' })
type View = z.output<typeof ArtifactView>

function statusOf({ status, pushing }: ArtifactDocument): View['status'] {
  if (status === 'ready') return 'ready'
  if (status !== 'creating') return 'failed'
  return pushing ? 'pushing' : 'staging'
}

const toView = (artifact: ArtifactDocument, upload_url: string | null = null): View => ({
  id: artifact._id,
  tenant_id: artifact.tenant_id,
  uuid: artifact._id,
  deploy_server_id: artifact.deploy_server_id,
  name: artifact.folder,
  status: statusOf(artifact),
  status_reason: artifact.status_reason,
  operation_id: artifact.operation_id,
  size_bytes: artifact.size_bytes,
  sha256: artifact.sha256,
  upload_url,
  worker: artifact.worker,
  path: artifact.path,
  files: artifact.files,
  unpacked_bytes: artifact.unpacked_bytes,
  created_at: time(artifact.created_at),
  updated_at: time(artifact.updated_at),
})

// Larger archives would hold the whole request in memory several times.
const mostMib = 16
const path = `${serverPath}/artifacts`
const gzipMagic = Buffer.from([0x1f, 0x8b])

/** The HTTP operations on artifacts. */
export const makeArtifacts = ({ apiUrl }: OperationsContext) => [
  operation({
    method: 'POST',
    path,
    permission: 'deploy_servers:manage',
    summary: 'Push an application’s files to the build worker, which unpacks them under /opt/apps/NAME',
    params: byId,
    body: z
      .strictObject({
        name: Name.describe(
          'The name of the folder; the upload replaces a former folder of this name once it is complete',
        ),
        content_b64: z
          .base64()
          .max(Math.ceil(((mostMib * 4) / 3) * 1024 * 1024))
          .optional()
          .describe(`A .tgz of at most ${mostMib} MiB`),
        upload: z
          .strictObject({
            size_bytes: z.int().min(1).max(uploadAtMost),
            sha256: z
              .string()
              .regex(/^[0-9a-f]{64}$/, 'must be a SHA-256 in hex')
              .nullable()
              .default(null),
          })
          .optional()
          .describe('A .tgz of at most 2 GiB, which is sent in parts to `upload_url` within a day'),
        team_object: z.string().max(1024).optional().describe('A .tgz in the storage of a team'),
      })
      .refine(
        ({ content_b64, upload, team_object }) =>
          [content_b64, upload, team_object].filter((one) => one !== undefined).length === 1,
        'must have one of content_b64, upload and team_object',
      ),
    json_kib: (mostMib * 4 * 1024) / 3 + 64,
    responses: { 202: ArtifactView },
    handle: async ({ caller, params: { id }, body: { name, content_b64, upload } }) => {
      await mine(deployServerResource, caller, id)
      const by = byOf(caller)
      if (upload !== undefined) {
        const {
          document,
          operation: accepted,
          token,
        } = await acceptUpload(by, id, { folder: name, ...upload })
        const url = `${apiUrl}/api/v1/uploads/${document._id}?token=${token}`
        return { operation_id: accepted._id, body: toView(document, url) }
      }
      if (content_b64 === undefined)
        throw new Problem(422, 'team_storage_unavailable', 'Teams have no storage yet')
      const archive = Buffer.from(content_b64, 'base64')
      if (!archive.subarray(0, 2).equals(gzipMagic))
        throw new InvalidInput(422, [{ pointer: '/content_b64', message: 'must be a .tgz' }])
      const { document, operation: accepted } = await acceptArtifact(by, id, { folder: name, archive })
      return { operation_id: accepted._id, body: toView(document) }
    },
  }),

  operation({
    method: 'GET',
    path: `${path}/{artifact}`,
    permission: 'deploy_servers:read',
    summary: 'Get an artifact: poll until it is ready',
    params: z.strictObject({ id: Id, artifact: Id }),
    responses: { 200: ArtifactView },
    handle: async ({ caller, params: { id, artifact } }) => toView(await artifactOf(caller, id, artifact)),
  }),
]
