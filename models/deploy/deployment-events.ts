import { Application } from './applications.ts'
import { Deployment, type DeploymentDocument, deploymentResource } from './deployments.ts'
import { tellEvent } from './events.ts'

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
  if (status === 'succeeded' && deployment.kind !== 'move')
    await tellEvent({ ...about, kind: 'application.deployed', message: `${release} was deployed`, data })
  if (status !== 'failed' && status !== 'error') return
  const reason = status_reason ?? 'The deployment failed'
  await tellEvent({
    ...about,
    kind: 'application.deploy_failed',
    message: `${release} was not deployed: ${reason}`,
    data: { ...data, reason },
  })
  if (serving && serving._id !== _id)
    await tellEvent({
      ...about,
      kind: 'application.rolled_back',
      message: `${release} was taken back, and ${serving.tag} serves on: ${reason}`,
      data: { ...data, reason },
    })
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
