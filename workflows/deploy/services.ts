import { CancellationScope, isCancellation, patched, proxyLocalActivities } from '@temporalio/workflow'
import type { AwaitedContainer } from '../../lib/deploy-protocol.ts'
import type { DeploymentActivities } from '../../activities/deploy/deployments.ts'
import type { ServiceActivities, ServicePlan } from '../../activities/deploy/services.ts'
import { durable, type Work } from '../durable.ts'
import { on } from '../hosts.ts'
import { endDeployments } from './applications.ts'
import { typeOf } from './backups.ts'
import { apply, balance, keepVolumes, onManager, servesWithin, triesToTidy } from './deployments.ts'

const platform = proxyLocalActivities<ServiceActivities & DeploymentActivities>({
  startToCloseTimeout: '10 s', // a few queries
  retry: { initialInterval: '100 ms', maximumInterval: '5 s' },
})

/** A container has two minutes at most to end. */
const endsWithinSec = 150

async function awaitAll(deployServerId: string, row: AwaitedContainer[], withinSec: number): Promise<void> {
  await onManager(
    deployServerId,
    (host, machineId) => host.awaitContainersOnHost(machineId, row, withinSec),
    servesWithin(withinSec),
  )
}

/**
 * Points the routes of the load balancer to the wanted containers. A port that does not speak to the load balancer is the
 * service's own affair: its status says whether it runs.
 */
async function route(id: string): Promise<void> {
  await balance(await platform.routeService(id))
}

/** Starts the containers row by row, each when those that it depends on are as it wants them. */
async function bring(
  { id, progress }: Work<unknown>,
  { deploy_server_id, within_sec, rows }: ServicePlan,
  restart: number | null = null,
): Promise<void> {
  for (const row of rows) {
    const names = row.map(({ name }) => name)
    progress(`starting ${names.join(', ')}`)
    await platform.advanceService(id, names, restart)
    await apply(deploy_server_id, id)
    await awaitAll(deploy_server_id, row, within_sec)
  }
  progress('waiting until all of it runs')
  const last = rows.flat().map((one) => (one.until === 'begun' ? { ...one, until: 'running' as const } : one))
  await awaitAll(deploy_server_id, last, within_sec)
}

/** Makes what was brought the service's own, and ends what is left out. */
async function settle(work: Work<unknown>): Promise<void> {
  const { id } = work
  await work.settle(() => platform.settleService(id))
  await CancellationScope.nonCancellable(async () => {
    const { deploy_server_id } = await platform.planService(id)
    work.progress('sending requests to it')
    await route(id)
    await apply(deploy_server_id, id)
    const volumes = await platform.volumesOfService(id, 'all')
    // A volume that the text no longer has is kept; one of a storage that was removed is not.
    if (volumes) await tidy(id, volumes).catch(() => undefined)
  })
}

const tidy = (id: string, volumes: NonNullable<Awaited<ReturnType<ServiceActivities['volumesOfService']>>>) =>
  keepVolumes('service', id, volumes, triesToTidy)

/** Ends all containers, and waits until they have ended. */
async function halt(id: string): Promise<void> {
  const { deploy_server_id, place } = await platform.haltService(id)
  const routed = await platform.routeService(id)
  if (routed) await balance({ ...routed, targets: null })
  await apply(deploy_server_id, id)
  if (!place) return
  await on(place.host_id, {
    // A worker whose host is away ends them when it is back.
    scheduleToStartTimeout: '1 minute',
    retry: { maximumAttempts: 3 },
  }).awaitEndedOnHost(place.machine_id, 'service', id, endsWithinSec)
}

/**
 * A failed start leaves its containers, so that their output can be read; a cancelled one ends them. So does one that the engine
 * refuses, because each later change of the deploy server would try it again. A service that ran before goes on.
 */
async function start(work: Work<unknown>, restart: number | null = null): Promise<void> {
  let ran = true
  try {
    const plan = await platform.planService(work.id)
    ran = plan.runs
    await bring(work, plan, restart)
  } catch (error) {
    if (
      isCancellation(error) ||
      (!ran && typeOf(error) === 'engine_refused' && patched('refused services end'))
    )
      work.undo(() => halt(work.id))
    throw error
  }
  await settle(work)
}

const running = { status: 'running' }
const rules = { onFailure: 'error', onCancel: 'stopped' }

export const createService = durable(async (work) => {
  await start(work)
  return running
}, rules)

export const startService = durable(async (work) => {
  await start(work)
  return running
}, rules)

export const restartService = durable(async (work) => {
  await start(work, Date.now())
  return running
}, rules)

/** A change that does not run is taken back. */
export const updateService = durable(async (work) => {
  const { id, before, undo } = work
  if (before === 'stopped') {
    await platform.settleService(id)
    return { status: 'stopped' }
  }
  undo(async () => {
    const back = await platform.takeServiceBack(id)
    if (!back) return
    await apply(back.deploy_server_id, id)
    await awaitAll(back.deploy_server_id, back.awaited, back.within_sec)
    await route(id)
    await platform.forgetFormer(id)
  })
  await platform.rememberService(id)
  await bring(work, await platform.planService(id))
  await settle(work)
  return running
})

export const stopService = durable(
  async ({ id, progress }) => {
    progress('stopping its containers')
    await halt(id)
    return { status: 'stopped' }
  },
  { final: true, onFailure: 'error' },
)

export const deleteService = durable<{ delete_volumes: boolean }>(
  async ({ id, input: { delete_volumes }, progress }) => {
    await endDeployments({ app_id: id })
    progress('stopping its containers')
    await halt(id)
    if (delete_volumes) {
      progress('destroying its volumes')
      const volumes = await platform.volumesOfService(id, 'none')
      if (volumes) await keepVolumes('service', id, volumes)
    }
    await platform.forgetService(id, !delete_volumes)
    return 'deleted'
  },
  { final: true, onFailure: 'error' },
)
