import { z } from 'zod'
import { deleteTarget } from '../../models/deploy/backup-target-deletion.ts'
import {
  BackupTarget,
  type BackupTargetDocument,
  changeTarget,
  checkTarget,
  createTarget,
  targetOf,
} from '../../models/deploy/backup-targets.ts'
import { bucketFaults } from '../../lib/tenant-buckets.ts'
import { byId, Id, Name, Timestamp, time } from '../fields.ts'
import { list } from '../list.ts'
import { operation } from '../operation.ts'

const shown = {
  endpoint: z.string().describe('The S3 server, such as `https://s3.eu-central-1.amazonaws.com`'),
  region: z.string(),
  bucket: z.string(),
  prefix: z.string().describe('The prefix of all objects’ names: empty, or ending with a slash'),
  path_style: z.boolean().describe('True: `endpoint/bucket/key`; false: `bucket.endpoint/key`'),
  access_key_id: z.string(),
}

const BackupTargetView = z
  .strictObject({
    id: Id,
    tenant_id: Id,
    name: z.string(),
    ...shown,
    checked_at: Timestamp,
    fault: z
      .strictObject({
        step: z.enum(['write', 'read', 'delete']),
        reason: z.enum(bucketFaults),
        message: z.string(),
      })
      .nullable()
      .describe('What the last check found; null: the bucket can be used'),
    created_at: Timestamp,
    updated_at: Timestamp,
  })
  .meta({ id: 'BackupTarget' })

const toView = (target: BackupTargetDocument): z.output<typeof BackupTargetView> => ({
  id: target._id,
  tenant_id: target.tenant_id,
  name: target.name,
  endpoint: target.endpoint,
  region: target.region,
  bucket: target.bucket,
  prefix: target.prefix,
  path_style: target.path_style,
  access_key_id: target.access_key_id,
  checked_at: time(target.checked_at),
  fault: target.fault && {
    step: target.fault.step,
    reason: target.fault.reason,
    message: target.fault.message,
  },
  created_at: time(target.created_at),
  updated_at: time(target.updated_at),
})

const isOrigin = (text: string): boolean => {
  const url = URL.parse(text)
  return url !== null && url.pathname === '/' && !url.search && !url.hash
}

/** No `.` and `..`, which a URL would resolve. */
const Prefix = z
  .string()
  .max(200)
  .regex(
    /^((?!\.{1,2}\/)[\w.-]+\/)*$/,
    'must be names of letters, digits, `_`, `.` and `-`, each followed by a slash',
  )

const fields = {
  name: Name,
  endpoint: z
    .string()
    .max(255)
    .refine(isOrigin, 'must be a URL without a path')
    .transform((text) => text.replace(/\/$/, ''))
    .describe(shown.endpoint.description ?? ''),
  region: z.string().regex(/^[a-z0-9-]{1,63}$/),
  bucket: z
    .string()
    .regex(/^[a-z0-9](?:[a-z0-9-]|\.(?=[a-z0-9])){1,61}[a-z0-9]$/, 'must be the name of a bucket')
    .describe('The bucket, which must exist'),
  prefix: Prefix.describe(shown.prefix.description ?? ''),
  path_style: shown.path_style,
  access_key_id: z.string().regex(/^[\x21-\x7e]{1,128}$/, 'must be the id of an access key'),
  secret_access_key: z
    .string()
    .regex(/^[\x21-\x7e]{1,256}$/, 'must be the secret of an access key')
    .describe('The secret of the access key; it is never shown again'),
}

const path = '/api/v1/backup-targets'

/** The HTTP operations on tenants' buckets for backups. */
export const backupTargets = [
  list({
    path,
    permission: 'backup_targets:read',
    summary: 'List the buckets of the tenant for backups',
    model: BackupTarget,
    view: BackupTargetView,
    toView,
    scope: ({ tenant_id }) => ({ tenant_id }),
  }),

  operation({
    method: 'POST',
    path,
    permission: 'backup_targets:create',
    summary: 'Add a bucket for backups, once an object has been written, read and deleted in it',
    body: z.strictObject({
      ...fields,
      region: fields.region.default('us-east-1'),
      prefix: fields.prefix.default(''),
      path_style: fields.path_style.default(true),
    }),
    responses: { 201: BackupTargetView },
    handle: async ({ caller, body }) => {
      const target = await createTarget(caller.tenant_id, body)
      return { location: `${path}/${target._id}`, body: toView(target) }
    },
  }),

  operation({
    method: 'GET',
    path: `${path}/{id}`,
    permission: 'backup_targets:read',
    summary: 'Get a bucket for backups',
    params: byId,
    responses: { 200: BackupTargetView },
    handle: async ({ caller, params }) => toView(await targetOf(caller, params.id)),
  }),

  operation({
    method: 'PATCH',
    path: `${path}/{id}`,
    permission: 'backup_targets:update',
    summary: 'Change the name, the access key or the prefix of a bucket; the bucket is checked first',
    params: byId,
    body: z
      .strictObject({
        name: fields.name,
        prefix: fields.prefix,
        access_key_id: fields.access_key_id,
        secret_access_key: fields.secret_access_key,
      })
      .partial(),
    responses: { 200: BackupTargetView },
    handle: async ({ caller, params, body }) =>
      toView(await changeTarget(await targetOf(caller, params.id), body)),
  }),

  operation({
    method: 'POST',
    path: `${path}/{id}/check`,
    permission: 'backup_targets:update',
    summary: 'Write, read and delete an object in the bucket; `fault` says what failed',
    params: byId,
    responses: { 200: BackupTargetView },
    handle: async ({ caller, params }) => toView(await checkTarget(await targetOf(caller, params.id))),
  }),

  operation({
    method: 'DELETE',
    path: `${path}/{id}`,
    permission: 'backup_targets:delete',
    summary: 'Remove a bucket that no schedule and no backup uses',
    params: byId,
    query: z.strictObject({
      forget_backups: z
        .stringbool({ truthy: ['true'], falsy: ['false'] })
        .default(false)
        .describe(
          'Forget its backups first: they can never be read again, and their objects stay in the bucket',
        ),
    }),
    responses: { 204: null },
    handle: async ({ caller, params, query }) =>
      deleteTarget(await targetOf(caller, params.id), { forgets: query.forget_backups }),
  }),
]
