import { transaction } from '../database.ts'
import { everyTenant } from '../tenant-scope.ts'
import { Application } from './applications.ts'
import { repeatPresent } from './deployment-acceptance.ts'
import { Deployment, type DeploymentKind } from './deployments.ts'

// The deployments of an application take turns. The newest wins: it takes the place of those that wait.

/** These release something of their own. A restart or a move only repeats what serves. */
const releasing: DeploymentKind[] = ['deploy', 'promote', 'stop']

export type Turn = 'mine' | 'waits' | 'superseded' | 'gone'

/**
 * Takes the turn if no other deployment has it. A restart or a move of what serves no more is superseded. Throws
 * `image_removed`.
 */
export const takeTurn = async (id: string): Promise<Turn> => {
  const deployment = await Deployment.findById(id).setOptions(everyTenant).lean()
  if (!deployment) return 'gone'
  const { app_id, tenant_id, number, kind } = deployment
  return transaction(async () => {
    const application = await Application.findOne({ _id: app_id, tenant_id }).lean()
    if (application?.status !== 'active') return 'gone'
    if (application.turn_id === id) return 'mine'
    const newer = await Deployment.exists({
      app_id,
      tenant_id,
      number: { $gt: number },
      ended_at: null,
      superseded: false,
      kind: { $in: [...releasing, kind] },
    })
    if (newer) return supersede(id, tenant_id)
    const { turn_id } = application
    // A deployment whose workflow was terminated does not give its turn back.
    const holder =
      turn_id && (await Deployment.findOne({ _id: turn_id, tenant_id }, { operation_id: 1 }).lean())
    if (holder && holder.operation_id !== null) return 'waits'
    // What it was to repeat may have been replaced while it waited.
    if (!releasing.includes(kind) && !(await repeatPresent(deployment, application)))
      return supersede(id, tenant_id)
    await Application.updateOne({ _id: app_id, tenant_id, turn_id }, { $set: { turn_id: id } })
    return 'mine'
  }, app_id)
}

async function supersede(_id: string, tenant_id: string): Promise<Turn> {
  await Deployment.updateOne({ _id, tenant_id }, { $set: { superseded: true } })
  return 'superseded'
}

/** Gives the turn back, if this deployment has it, and records its end. Idempotent. */
export async function endTurn(id: string): Promise<void> {
  await Application.updateOne({ turn_id: id }, { $set: { turn_id: null } }).setOptions(everyTenant)
  await Deployment.updateOne({ _id: id, ended_at: null }, { $set: { ended_at: new Date() } }).setOptions(
    everyTenant,
  )
}
