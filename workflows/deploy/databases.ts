import { CancellationScope, patched, proxyLocalActivities } from '@temporalio/workflow'
import type { AttachmentActivities } from '../../activities/deploy/attachments.ts'
import type {
  BeginsWith,
  DatabaseActivities,
  DatabaseFacts,
  FormerStart,
  ReturnsTo,
} from '../../activities/deploy/databases.ts'
import type { DeploymentActivities } from '../../activities/deploy/deployments.ts'
import { isFailure } from '../carry-out.ts'
import { durable, type Work } from '../durable.ts'
import { someTries, takeAway, unlessCancelled } from './attachments.ts'
import { on } from '../hosts.ts'
import { copying, typeOf } from './backups.ts'
import { apply, balance, keepVolumes, onManager, servesWithin, triesToTidy } from './deployments.ts'
import { listen } from './domains.ts'

// A database starts and ends as a service of its own, never by Swarm's update: the platform itself waits until the former
// engine has ended before the next one gets its volumes.

const platform = proxyLocalActivities<DatabaseActivities & DeploymentActivities>({
  startToCloseTimeout: '10 s', // a few queries
  retry: { initialInterval: '100 ms', maximumInterval: '5 s' },
})

const attachments = proxyLocalActivities<AttachmentActivities>({
  startToCloseTimeout: '10 s', // a few queries
  retry: { initialInterval: '100 ms', maximumInterval: '5 s' },
})

/** An engine that finds much to recover reads its log for minutes. */
const answersWithinSec = 600

/** Ends its engine, if it runs, and waits for the end. */
async function end(id: string): Promise<DatabaseFacts> {
  const facts = await platform.databaseFacts(id)
  await platform.settleStop(id)
  await apply(facts.deploy_server_id, id)
  await awaitEnd(id, facts.at, facts.stop_grace_sec)
  return facts
}

async function awaitEnd(id: string, at: DatabaseFacts['at'], graceSec: number): Promise<void> {
  if (at) await on(at.host_id).awaitServiceEndedOnHost(at.machine_id, id, graceSec + 60)
}

/** Waits until the service that is to run answers. */
async function awaitAnswer(id: string): Promise<void> {
  const { deploy_server_id, at, healthy, serving } = await platform.databaseFacts(id)
  if (!at || !serving) return
  const waiting = servesWithin(answersWithinSec)
  const its = { path: null, what: 'The database', isAlone: true }
  await onManager(
    deploy_server_id,
    (host, machineId) => host.awaitServingOnHost(machineId, [serving], its, answersWithinSec),
    waiting,
  )
  await on(at.host_id, waiting).awaitHealthyOnHost(at.machine_id, id, healthy, answersWithinSec)
}

/** Starts it with its present settings. Its former engine has ended. */
async function start({ id, progress }: Work<unknown>, former: FormerStart): Promise<void> {
  const facts = await platform.databaseFacts(id)
  const { title } = facts
  progress(`starting ${title}`)
  await platform.settleStart(id, former)
  await apply(facts.deploy_server_id, id)
  progress(`waiting until ${title} answers`)
  await awaitAnswer(id)
  await admitClients(id)
  await makeUsers(id, facts)
}

/** The load balancer's checks may have found it down meanwhile. Its host may be away, which ends no database. */
async function admitClients(id: string): Promise<void> {
  await balance(await platform.noteAnswered(id)).catch(unlessCancelled)
}

/** The engine may have forgotten the users of attached instances, or have users of others in its volume. */
async function makeUsers(id: string, { at, has_users }: DatabaseFacts): Promise<void> {
  // The host tries again by itself, so a refusal is no reason to end what answers.
  if (has_users && at) await on(at.host_id, someTries).applyDatabaseUsersOnHost(id).catch(unlessCancelled)
}

/** Finds its worker and gets the image, by default its own, before anything ends. */
async function prepare({ id, progress }: Work<unknown>, other?: string): Promise<void> {
  progress('finding room on a worker')
  await platform.placeDatabase(id)
  const { at, image } = await platform.databaseFacts(id)
  const wanted = other ?? image
  progress(`getting the image ${wanted}`)
  if (at) await on(at.host_id).provideImageOnHost(at.machine_id, wanted)
}

/** Why it did not start is often in its output, which ends with it. */
async function keepOutput(id: string): Promise<void> {
  const { at } = await platform.databaseFacts(id)
  if (!at) return
  const reading = on(at.host_id, {
    scheduleToStartTimeout: '5 s',
    startToCloseTimeout: '15 s',
    retry: { maximumAttempts: 1 },
  })
  await platform.noteFailedStart(id, await reading.lastLinesOnHost(at.machine_id, id).catch(() => []))
}

/** Ends an engine that did not come to answer. Its volumes go with it if they never held data. */
async function takeBack(id: string, former: FormerStart): Promise<void> {
  await keepOutput(id)
  await end(id)
  if (!(await platform.databaseHasData(id))) return destroyVolumes(id)
  await platform.takeStartBack(id, { ...former, runs: false })
}

async function destroyVolumes(id: string): Promise<void> {
  const wanted = await platform.volumesOfDatabase(id, 'none')
  if (wanted) await keepVolumes('database', id, wanted)
  await platform.noteVolumesDestroyed(id)
}

/** Destroys the volumes of storages that were removed. A failure is made good by the next start. */
async function tidy(id: string): Promise<void> {
  const wanted = await platform.volumesOfDatabase(id, 'all')
  if (wanted) await keepVolumes('database', id, wanted, triesToTidy).catch(() => undefined)
}

async function dropRefill(id: string): Promise<void> {
  const { at } = await platform.databaseFacts(id)
  // If the host is away, the next refill or tidying removes the engine, and the end of the operation ends the refill.
  if (at) await on(at.host_id).removeScratchOnHost(at.machine_id, id)
  await platform.endRefill(id)
  await tidy(id)
}

/** Restores a backup into a volume in which there is nothing yet, and compares it. Nobody reaches that engine. */
async function refill(
  { id, operation_id, undo, progress }: Work<unknown>,
  executionId: string,
  as: { isNew?: boolean; to?: { version: string; image: string }; at?: string | undefined } = {},
): Promise<void> {
  undo(() => dropRefill(id))
  await platform.beginRefill(id, executionId, { operation_id, ...as })
  const { at, deploy_server_id } = await platform.databaseFacts(id)
  progress(as.at ? 'recovering to the moment in a new volume' : 'restoring the backup into a new volume')
  if (!at) return
  try {
    await on(at.host_id, copying).refillOnHost(deploy_server_id, executionId, id)
  } catch (error) {
    if (typeOf(error) === 'backup_damaged') await platform.lookAtBackup(executionId)
    throw error
  }
}

/** Has it run again as it did before. */
async function goBack({ id, operation_id }: Work<unknown>, former: FormerStart): Promise<void> {
  await keepOutput(id)
  await end(id)
  await platform.takeVolumesBack(id, operation_id)
  await startAsBefore(id, former)
}

async function startAsBefore(id: string, former: FormerStart): Promise<void> {
  await platform.takeStartBack(id, former)
  if (!former.runs) return
  const facts = await platform.databaseFacts(id)
  await apply(facts.deploy_server_id, id)
  await awaitAnswer(id)
  await admitClients(id)
  await makeUsers(id, facts)
}

/** Starts it with the volume that is to have its data. The former volume is kept. */
async function takeRefill(work: Work<unknown>, before: FormerStart): Promise<void> {
  const { id, undo, progress } = work
  const { applied } = await platform.formerStart(id)
  undo(() => goBack(work, before))
  progress('ending the database')
  await end(id)
  await platform.switchVolumes(id)
  // Earlier histories can be cancelled from here on, and keep nothing.
  const stays = patched('what a refill has started stays')
  // Clients may write as soon as it runs, so a cancel comes too late.
  await new CancellationScope({ cancellable: !stays }).run(async () => {
    try {
      await start(work, { ...before, applied })
    } catch (error) {
      // It may have run unseen, and what was written then is kept, too.
      if (stays && typeOf(error) !== 'service_failed') await platform.keepRefill(id)
      throw error
    }
    await platform.endRefill(id)
    await tidy(id)
  })
}

/** Runs one that does not run. A failure leaves it stopped. */
async function run(
  work: Work<unknown>,
  { execution_id: executionId, at: moment }: Partial<BeginsWith>,
): Promise<void> {
  const { id, undo } = work
  const former = await platform.formerStart(id)
  undo(() => takeBack(id, former))
  const isNew = await neverRan(id, former)
  await prepare(work)
  if (!isNew) {
    // One of its containers may still be ending.
    const { at, stop_grace_sec } = await platform.databaseFacts(id)
    await awaitEnd(id, at, stop_grace_sec)
  }
  if (executionId !== undefined) await refill(work, executionId, { isNew: true, at: moment })
  await start(work, former)
  if (executionId !== undefined) await platform.endRefill(id)
  if (!isNew || executionId !== undefined) await tidy(id)
}

/** It has neither containers nor volumes: a start that failed took its own away. */
const neverRan = async (id: string, { applied }: FormerStart): Promise<boolean> =>
  applied === null && !(await platform.databaseHasData(id))

export const createDatabase = durable<Partial<BeginsWith>>(
  async (work) => {
    await run(work, work.input)
    return { status: 'running' }
  },
  { onFailure: 'error' },
)

export const startDatabase = durable<Partial<BeginsWith>>(
  async (work) => {
    await run(work, work.input)
    return { status: 'running' }
  },
  { cancelRestores: true },
)

/** Applies its present settings. If it does not answer with them, it goes back to the former ones. */
export const restartDatabase = durable<Partial<BeginsWith>>(async (work) => {
  const { id, undo, progress } = work
  const former = await platform.formerStart(id)
  if (!former.runs) {
    await run(work, work.input)
    return { status: 'running' }
  }
  await prepare(work)
  undo(async () => {
    await keepOutput(id)
    await end(id)
    await startAsBefore(id, former)
  })
  progress('ending the database')
  await end(id)
  await start(work, former)
  await tidy(id)
  return { status: 'running' }
})

/**
 * Puts a backup, what there was at a moment, or a former volume in the place of the data. The engine serves on until a backup is
 * restored in a new volume and compared. The present volume is kept.
 */
export const restoreDatabase = durable<BeginsWith | ReturnsTo>(async (work) => {
  const { id, operation_id, input, undo } = work
  const former = await platform.formerStart(id)
  if ('volume_id' in input) {
    await prepare(work, input.image)
    undo(() => platform.endRefill(id))
    await platform.beginReturn(id, input, operation_id)
  } else {
    await prepare(work)
    await refill(work, input.execution_id, { at: input.at })
  }
  await takeRefill(work, former)
  return { status: 'running' }
})

/**
 * Brings the data into a newer line of the engine by a backup. No client reaches the engine while it is made, so nothing
 * that was written is lost. The former volume is kept.
 */
export const upgradeDatabase = durable<{ version: string; image: string }>(async (work) => {
  const { id, input, undo, progress, carryOut } = work
  const former = await platform.formerStart(id)
  const { at, deploy_server_id } = await platform.databaseFacts(id)
  progress(`getting the image ${input.image}`)
  if (at) await on(at.host_id).provideImageOnHost(at.machine_id, input.image)
  undo(async () => {
    const { isolated } = await platform.databaseFacts(id)
    if (isolated || !(await platform.formerStart(id)).runs) await goBack(work, former)
  })
  progress('ending the connections of clients')
  await end(id)
  await platform.settleIsolated(id, former)
  await apply(deploy_server_id, id)
  await awaitAnswer(id)
  progress('backing it up')
  const rules = { key: 'backup', undo: null } // the backup stays
  const executionId = await carryOut({ kind: 'backup_execution' }, 'create', { database_id: id }, rules)
  await refill(work, executionId, { to: input })
  await takeRefill(work, former)
  return { status: 'running' }
})

/** Has the load balancer lead clients outside to it. The engine is not touched: it takes TLS from its first start on. */
export const publishDatabase = durable(async (work) => {
  const { id, undo, progress } = work
  const { deploy_server_id } = await platform.databaseFacts(id)
  progress('opening a port of the load balancer')
  undo(() => takePublicationBack(work))
  await platform.publishDatabase(id)
  await listen(work, deploy_server_id)
  return { status: 'running' }
})

export const unpublishDatabase = durable(
  async (work) => {
    work.progress('closing its port of the load balancer')
    await takePublicationBack(work)
    return { status: 'running' }
  },
  { final: true },
)

async function takePublicationBack(work: Work<unknown>): Promise<void> {
  const { id, carryOut } = work
  const { deploy_server_id } = await platform.databaseFacts(id)
  await platform.unpublishDatabase(id)
  await listen(work, deploy_server_id, 'without its listener')
  const certificate = await platform.certificateOfDatabase(id)
  if (certificate === null) return
  const rules = { waitsForOthers: true, undo: null }
  await carryOut({ kind: 'certificate', id: certificate }, 'delete', {}, rules).catch(unlessGone)
}

const unlessGone = (error: unknown): void => {
  if (!isFailure(error, 'not_found')) throw error
}

export const stopDatabase = durable(
  async ({ id, progress }) => {
    progress('ending the database')
    await end(id)
    return { status: 'stopped' }
  },
  { final: true, onFailure: 'error' },
)

export const deleteDatabase = durable<{ delete_volumes?: boolean }>(
  async (work) => {
    const { id, input, progress } = work
    progress('ending the database')
    const { has_users, published } = await end(id)
    if (published) await takePublicationBack(work)
    if (has_users) {
      progress('detaching it from instances')
      for (const attachment of await attachments.attachmentsOfDatabase(id)) await takeAway(attachment)
    }
    if (input.delete_volumes === false && (await platform.databaseHasData(id))) {
      // What a failed refill left on the worker is no volume of the database.
      if (patched('kept volumes are tidied')) await tidy(id)
      await platform.keepDatabaseVolumes(id)
      return 'deleted'
    }
    progress('destroying its volumes')
    await destroyVolumes(id)
    await platform.forgetDatabaseStorages(id)
    return 'deleted'
  },
  { final: true, onFailure: 'error' },
)

export const deleteKeptVolumes = durable(
  async ({ id, progress }) => {
    progress('destroying the volumes')
    const wanted = await platform.volumesOfDatabase(id, 'none')
    if (wanted) await keepVolumes('database', id, wanted)
    await platform.forgetDatabaseStorages(id)
    return 'deleted'
  },
  { final: true, onFailure: 'error' },
)
