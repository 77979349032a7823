import { z } from 'zod'
import type { VolumeOwnerKind } from '../../lib/deploy-protocol.ts'
import { applicationOf } from '../../models/deploy/applications.ts'
import { databaseOf } from '../../models/deploy/databases.ts'
import {
  createStorage,
  deleteStorage,
  Storage,
  type StorageDocument,
  type StorageOwner,
} from '../../models/deploy/storages.ts'
import { Id, Name, Timestamp, time } from '../fields.ts'
import { list } from '../list.ts'
import { type Caller, operation } from '../operation.ts'
import { MountPath } from '../storage/mounts.ts'
import { path as serverPath } from './deployments.ts'

/** `/var/lib/data` → `var-lib-data` */
const nameFor = (mountPath: string): string =>
  mountPath
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, '-')
    .replaceAll(/^-|-$/g, '')
    .slice(-60)
    .replace(/^-/, '') || 'storage'

/** The HTTP operations on the storages of one kind of owner. */
export function storagesOf(owner: {
  kind: VolumeOwnerKind
  /** `applications` */
  plural: string
  /** In sentences: `an application`. */
  words: string
  /** The owner's name in the path, and its field in views. */
  param: string
  field: string
  /** The id of the view in the API's description. */
  view: string
  find: (caller: Caller, deployServerId: string, id: string) => Promise<StorageOwner>
  /** What applies a change: `deployment`. */
  applied_by: string
  /** Whether a storage names the container that mounts it. Throws InvalidInput for one that is none. */
  needContainer?: (owner: StorageOwner, container: string) => void
  /** Throws InvalidInput if the container mounts something else at the path. */
  needFreePath?: (owner: StorageOwner, container: string, mountPath: string) => Promise<void>
}) {
  const { kind, words, param, field, applied_by, needContainer, needFreePath } = owner
  const contained = needContainer !== undefined
  const path = `${serverPath}/${owner.plural}/{${param}}/storages`
  const byOwner = z.strictObject({ id: Id, [param]: Id })
  const byStorage = z.strictObject({ ...byOwner.shape, storage: Id })
  const ownerOf = (caller: Caller, params: Record<string, string>): Promise<StorageOwner> =>
    owner.find(caller, params['id'] ?? '', params[param] ?? '')

  const StorageView = z
    .strictObject({
      id: Id,
      tenant_id: Id,
      uuid: Id.describe('The same as `id`'),
      deploy_server_id: Id,
      [field]: Id,
      ...(contained ? { container: z.string() } : {}),
      name: z.string(),
      mount_path: z.string(),
      created_at: Timestamp,
      updated_at: Timestamp,
    })
    .meta({ id: owner.view })
  const toView = (storage: StorageDocument) => ({
    id: storage._id,
    tenant_id: storage.tenant_id,
    uuid: storage._id,
    deploy_server_id: storage.deploy_server_id,
    [field]: storage.app_id,
    ...(contained ? { container: storage.container ?? '' } : {}),
    name: storage.name,
    mount_path: storage.mount_path,
    created_at: time(storage.created_at),
    updated_at: time(storage.updated_at),
  })

  return [
    list({
      path,
      permission: 'deploy_servers:read',
      summary: `List the persistent volumes of ${words}`,
      params: byOwner,
      model: Storage,
      view: StorageView,
      toView,
      stored: { uuid: '_id', [field]: 'app_id' },
      scope: async (caller, params) => {
        const { _id, tenant_id } = await ownerOf(caller, params)
        return { tenant_id, app_id: _id }
      },
    }),

    operation({
      method: 'POST',
      path,
      permission: 'deploy_servers:manage',
      summary: `Give ${words} a persistent volume, which the next ${applied_by} mounts`,
      params: byOwner,
      body: z.strictObject({
        name: Name.optional().describe('Default: made from the path'),
        mount_path: MountPath.refine((mounted) => !mounted.includes('{{'), 'must not have {{ in it'),
        ...(contained ? { container: z.string().max(40).describe('The container that mounts it') } : {}),
      }),
      responses: { 201: StorageView },
      handle: async ({ caller, params, body }) => {
        const {
          mount_path,
          name = nameFor(mount_path),
          container,
        } = body as typeof body & { container?: string }
        const found = await ownerOf(caller, params)
        if (container !== undefined) {
          needContainer?.(found, container)
          await needFreePath?.(found, container, mount_path)
        }
        const of = container === undefined ? {} : { container }
        const storage = await createStorage(kind, found, { name, mount_path, ...of })
        const location = `/api/v1/deploy-servers/${found.deploy_server_id}/${owner.plural}/${found._id}/storages/${storage._id}`
        return { location, body: toView(storage) }
      },
    }),

    operation({
      method: 'DELETE',
      path: `${path}/{storage}`,
      permission: 'deploy_servers:manage',
      summary: `Remove a persistent volume; the next ${applied_by} unmounts it and destroys its data`,
      params: byStorage,
      responses: { 204: null },
      handle: async ({ caller, params }) => deleteStorage(await ownerOf(caller, params), params.storage),
    }),
  ]
}

export const storages = [
  ...storagesOf({
    kind: 'application',
    plural: 'applications',
    words: 'an application',
    param: 'app',
    field: 'app_id',
    view: 'ApplicationStorage',
    find: applicationOf,
    applied_by: 'deployment',
  }),
  ...storagesOf({
    kind: 'database',
    plural: 'databases',
    words: 'a database',
    param: 'db',
    field: 'database_id',
    view: 'DatabaseStorage',
    find: databaseOf,
    applied_by: 'restart',
  }),
]
