import { everyTenant } from '../tenant-scope.ts'
import { builder } from './artifacts.ts'
import { Build, type BuildDocument } from './builds.ts'
import type { DeploymentDocument } from './deployments.ts'
import type { DeployServerDocument } from './deploy-servers.ts'
import { otherRegistry, type RegistryNode, registryNodes } from './registries.ts'

// Which registries of a deploy server have an image. Each kept image is to be in both: the one on the worker that builds is
// lost with its host, and so is the one on the control plane.

type Server = Pick<DeployServerDocument, '_id' | 'tenant_id'>

const kept = { image_state: 'kept' as const, digest: { $ne: null } }
const onlyOn = (node: RegistryNode) => ({ image_on: node, $nor: [{ image_on: otherRegistry(node) }] })

/** The images that one registry is to get from the other, the newest first. */
export const imagesToCopy = ({ _id, tenant_id }: Server, to: RegistryNode): Promise<BuildDocument[]> =>
  Build.find({
    deploy_server_id: _id,
    tenant_id,
    ...kept,
    ...onlyOn(otherRegistry(to)),
  })
    .sort({ created_at: -1 })
    .lean()

/** The names of the images that are kept. */
export const imageNames = ({ _id, tenant_id }: Server): Promise<string[]> =>
  Build.distinct('image', { deploy_server_id: _id, tenant_id, ...kept })

/** Whether a registry is to get an image from the other one. */
export const lacksImages = async (server: Server, node: RegistryNode): Promise<boolean> =>
  (await imagesToCopy(server, node)).length > 0

/** Records that this machine has these images, unless another one has taken its place since. Idempotent. */
export async function noteImagesOn(
  { _id, tenant_id, nodes }: DeployServerDocument,
  node: RegistryNode,
  machineId: string,
  ids: string[],
): Promise<void> {
  if (nodes.find(({ name }) => name === node)?.machine_id !== machineId) return
  const its = {
    _id: { $in: ids },
    tenant_id,
    deploy_server_id: _id,
    image_state: { $in: ['kept', 'leaving'] as const },
  }
  await Build.updateMany(its, { $addToSet: { image_on: node } })
}

/** A registry was lost with its machine: images that only it had are gone. Idempotent. */
export async function noteRegistryLost(deploy_server_id: string, node: RegistryNode): Promise<void> {
  const there = { deploy_server_id, image_state: { $in: ['kept', 'leaving'] as const } }
  await Build.updateMany(
    { ...there, ...onlyOn(node) },
    { $set: { image_state: 'gone', image_on: [] } },
  ).setOptions(everyTenant)
  await Build.updateMany(there, { $pull: { image_on: node } }).setOptions(everyTenant)
}

/** The registry from which workers pull the image of a deployment: one that has it and answers. */
export async function registryFor(
  { tenant_id, nodes }: DeployServerDocument,
  built: NonNullable<DeploymentDocument['built']>,
): Promise<RegistryNode> {
  const build = await Build.findOne({ _id: built.build_id, tenant_id }).lean()
  const holders = build?.image_on ?? []
  const answers = (node: RegistryNode): boolean =>
    nodes.some(({ name, registered, lost_at }) => name === node && registered && lost_at === null)
  return registryNodes.find((node) => holders.includes(node) && answers(node)) ?? builder
}
