import { Application } from './applications.ts'
import { DeployServer } from './deploy-servers.ts'
import { Deployment, type DeploymentDocument, deploymentResource } from './deployments.ts'
import { tellEvent } from './events.ts'
import { hasFailedSince } from './moves.ts'

// What the end of a deployment tells. It runs in the transaction that ends the deployment's operation.

deploymentResource.comesToRest = async ({ _id, tenant_id }) => {
  const deployment = await Deployment.findOne({ _id, tenant_id }).lean()
  if (!deployment || deployment.kind === 'stop' || deployment.superseded) return
  const { app_id, deploy_server_id, status, status_reason } = deployment
  const application = await Application.findOne({ _id: app_id, tenant_id, status: 'active' }).lean()
  if (!application) return
  const { name, current_id } = application
  const serving = current_id && (await Deployment.findOne({ _id: current_id, tenant_id }).lean())
  const serves = serving ? shown(serving) : null
  const about = { tenant_id, deploy_server_id, app_id }
  const data = { application: { id: app_id, name }, deployment: shown(deployment), serves }
  const release = `${name} ${deployment.tag}`
  // Nobody asked for a move.
  const isMove = deployment.kind === 'move'
  if (status === 'succeeded' && !isMove)
    await tellEvent({ ...about, kind: 'application.deployed', message: `${release} was deployed`, data })
  if (status !== 'failed' && status !== 'error') return
  if (isMove && (await isKnown(deployment, serving))) return
  const reason = status_reason ?? 'The deployment failed'
  await tellEvent({
    ...about,
    kind: 'application.deploy_failed',
    message: `${release} was not ${isMove ? 'moved to another worker' : 'deployed'}: ${reason}`,
    data: { ...data, reason },
  })
  if (serving && serving._id !== _id && !isMove)
    await tellEvent({
      ...about,
      kind: 'application.rolled_back',
      message: `${release} was taken back, and ${serving.tag} serves on: ${reason}`,
      data: { ...data, reason },
    })
}

/** The platform tries again while a worker is lost. Its owner is told of the first failure. */
async function isKnown(move: DeploymentDocument, serving: DeploymentDocument | null | ''): Promise<boolean> {
  const { deploy_server_id: _id, tenant_id } = move
  const server = await DeployServer.findOne({ _id, tenant_id }, { nodes: 1 }).lean()
  const from = new Set(serving ? serving.places.map(({ node }) => node) : [])
  const lost =
    server?.nodes.flatMap(({ name, lost_at }) => (lost_at && from.has(name) ? [lost_at] : [])) ?? []
  if (lost.length === 0) return false
  return hasFailedSince(move, new Date(Math.min(...lost.map(Number))))
}

const shown = ({ _id, number, kind, image, tag, message, requested_by }: DeploymentDocument) => ({
  id: _id,
  number,
  kind,
  image,
  tag,
  message,
  requested_by,
})
