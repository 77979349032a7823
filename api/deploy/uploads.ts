import { Unavailable } from '../../lib/problem.ts'
import { type ArtifactDocument, builder } from '../../models/deploy/artifacts.ts'
import { DeployServer } from '../../models/deploy/deploy-servers.ts'
import { onHosts } from '../../models/deploy/replicas.ts'
import { findUpload, isOver, noteWhole } from '../../models/deploy/uploads.ts'
import { askUpload } from '../compute/observation/data-plane.ts'
import type { FindUpload } from '../uploads.ts'

/** Archives of artifacts. They go through the api to the worker's disk, and are nowhere else. */
export const artifactUpload: FindUpload = async (id, token) => {
  const artifact = await findUpload(id, token)
  if (!artifact) return null
  const { size_bytes, operation_id, upload } = artifact
  return {
    id,
    size_bytes,
    operation_id,
    isOver: isOver(artifact),
    offset: async (signal) => (upload.whole ? size_bytes : askUpload(await placeOf(artifact), id, signal)),
    add: async ({ offset, left, bytes }, signal) =>
      askUpload(await placeOf(artifact), id, signal, { offset, atMost: left, bytes }),
    noteWhole: () => noteWhole(artifact),
  }
}

async function placeOf({ deploy_server_id, tenant_id }: ArtifactDocument) {
  const server = await DeployServer.findOne({ _id: deploy_server_id, tenant_id }).lean()
  const node = server?.nodes.find(({ name }) => name === builder)
  const [place] = await onHosts([{ machine_id: node?.machine_id ?? '', service_id: '', node: builder }])
  if (!place) throw new Unavailable('The worker is not available')
  return place
}
