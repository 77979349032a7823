import { z } from 'zod'
import { applicationOf } from '../../models/deploy/applications.ts'
import { createStorage, deleteStorage, Storage, type StorageDocument } from '../../models/deploy/storages.ts'
import { Id, Name, Timestamp, time } from '../fields.ts'
import { list } from '../list.ts'
import { operation } from '../operation.ts'
import { MountPath } from '../storage/mounts.ts'
import { path as serverPath } from './deployments.ts'

const StorageView = z
  .strictObject({
    id: Id,
    tenant_id: Id,
    uuid: Id.describe('The same as `id`'),
    deploy_server_id: Id,
    app_id: Id,
    name: z.string(),
    mount_path: z.string(),
    created_at: Timestamp,
    updated_at: Timestamp,
  })
  .meta({ id: 'ApplicationStorage' })

const toView = (storage: StorageDocument): z.output<typeof StorageView> => ({
  id: storage._id,
  tenant_id: storage.tenant_id,
  uuid: storage._id,
  deploy_server_id: storage.deploy_server_id,
  app_id: storage.app_id,
  name: storage.name,
  mount_path: storage.mount_path,
  created_at: time(storage.created_at),
  updated_at: time(storage.updated_at),
})

/** `/var/lib/data` → `var-lib-data` */
const nameFor = (mountPath: string): string =>
  mountPath
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, '-')
    .replaceAll(/^-|-$/g, '')
    .slice(-60)
    .replace(/^-/, '') || 'storage'

const path = `${serverPath}/applications/{app}/storages`
const byApp = z.strictObject({ id: Id, app: Id })

/** The HTTP operations on storages. */
export const storages = [
  list({
    path,
    permission: 'deploy_servers:read',
    summary: 'List the persistent volumes of an application',
    params: byApp,
    model: Storage,
    view: StorageView,
    toView,
    stored: { uuid: '_id' },
    scope: async (caller, { id, app }) => {
      const { _id, tenant_id } = await applicationOf(caller, id, app)
      return { tenant_id, app_id: _id }
    },
  }),

  operation({
    method: 'POST',
    path,
    permission: 'deploy_servers:manage',
    summary: 'Give an application a persistent volume. A deployment mounts it',
    params: byApp,
    body: z.strictObject({
      name: Name.optional().describe('Default: made from the path'),
      mount_path: MountPath,
    }),
    responses: { 201: StorageView },
    handle: async ({ caller, params: { id, app }, body: { mount_path, name = nameFor(mount_path) } }) => {
      const storage = await createStorage(await applicationOf(caller, id, app), { name, mount_path })
      const location = `/api/v1/deploy-servers/${id}/applications/${app}/storages/${storage._id}`
      return { location, body: toView(storage) }
    },
  }),

  operation({
    method: 'DELETE',
    path: `${path}/{storage}`,
    permission: 'deploy_servers:manage',
    summary: 'Remove a persistent volume. The next deployment unmounts it and destroys its data',
    params: z.strictObject({ id: Id, app: Id, storage: Id }),
    responses: { 204: null },
    handle: async ({ caller, params: { id, app, storage } }) =>
      deleteStorage(await applicationOf(caller, id, app), storage),
  }),
]
