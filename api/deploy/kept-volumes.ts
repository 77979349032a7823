import { z } from 'zod'
import { begin } from '../../models/acceptance.ts'
import { databaseTypes } from '../../models/deploy/engines/index.ts'
import {
  KeptVolumes,
  type KeptVolumesDocument,
  keptVolumesOf,
  keptVolumesResource,
} from '../../models/deploy/kept-volumes.ts'
import { accepting } from '../accept.ts'
import { byId, commonView, Id, resourceView } from '../fields.ts'
import { list } from '../list.ts'
import { operation } from '../operation.ts'
import { inDeployServer } from './children.ts'
import { path as serverPath } from './deployments.ts'

const KeptVolumesView = z
  .strictObject({
    ...resourceView,
    uuid: Id.describe('The same as `id`'),
    name: z.string().describe('The name of the deleted database'),
    deploy_server_id: Id,
    type: z.enum(databaseTypes),
    version: z.string().describe('The version of the engine that last wrote to it'),
    worker: z.string().describe('The worker that has it'),
  })
  .meta({ id: 'KeptVolumes' })

const toView = (kept: KeptVolumesDocument): z.output<typeof KeptVolumesView> => ({
  ...commonView(kept),
  uuid: kept._id,
  deploy_server_id: kept.deploy_server_id,
  type: kept.type,
  version: kept.version,
  worker: kept.volume_node,
})

const path = `${serverPath}/kept-volumes`

/** The HTTP operations on the volumes of deleted databases. A new database takes one by `volume_id`. */
export const keptVolumes = [
  list({
    path,
    permission: 'deploy_servers:read',
    summary: 'List the volumes that were kept when their databases were deleted',
    params: byId,
    model: KeptVolumes,
    view: KeptVolumesView,
    toView,
    stored: { uuid: '_id', worker: 'volume_node' },
    scope: inDeployServer,
  }),

  operation({
    method: 'DELETE',
    path: `${path}/{volume}`,
    permission: 'deploy_servers:manage',
    summary: 'Destroy the kept volumes of a deleted database with their data',
    params: z.strictObject({ id: Id, volume: Id }),
    responses: { 202: KeptVolumesView },
    handle: async ({ caller, params: { id, volume } }) => {
      await keptVolumesOf(caller, id, volume)
      return accepting(caller, toView, (by) => begin(by, keptVolumesResource, volume, 'delete'))
    },
  }),
]
