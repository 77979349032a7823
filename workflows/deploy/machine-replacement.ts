import type { MachinePlace } from '../../activities/deploy/deploy-servers.ts'
import { ActivityFailure, type ActivityOptions, isCancellation, patched } from '@temporalio/workflow'
import { isFailure } from '../carry-out.ts'
import { durable } from '../durable.ts'
import { on } from '../hosts.ts'
import { together } from '../together.ts'
import { copyImages } from './builds.ts'
import { apply, balance } from './deployments.ts'
import {
  atRest,
  deployments,
  emptyNode,
  makeNode,
  placeOf,
  platform,
  readmit,
  register,
  say,
  type Server,
} from './machines.ts'

/** The worker with the registry whose copy is on the control plane. */
const builder = 'w1'

interface Replacement {
  name: string
  /** Not there: a former release accepted it. */
  discard_volumes?: boolean
}

/** Makes a machine in the place of one that is lost, or that its owner wants anew. */
export const replaceDeployServer = durable<Replacement>(async (work) => {
  await (work.input.name === 'cp' ? replaceControlPlane(work) : replaceWorker(work, work.input))
  return { status: 'ready', init_step: null }
})

async function replaceWorker(work: Server, { name, discard_volumes = false }: Replacement): Promise<void> {
  const { id, undo } = work
  const { cp, [name]: place } = await platform.placesOfNodes(id)
  const { registered = false } = (await platform.nodeAt(id, name)) ?? {}
  undo(() =>
    registered && cp && place
      ? readmit(id, name, cp, place).catch(() => undefined) // it stays as it is noted: the next update has it join
      : platform.noteNode(id, name, { registered }),
  )
  // Nothing more is placed there, and nothing that has volumes was since the acceptance.
  if (patched('volumes are looked for again')) await platform.closeWorker(id, name, discard_volumes)
  else await platform.noteNode(id, name, { registered: false })
  // The last chance to copy what only this worker has. Its applications pull from the copies.
  if (name === builder && (await platform.workersThatAnswer(id)).includes(name))
    await copyImages(id, { tries: 1 })
  if (cp && place) {
    await say(work, `moving the applications away from ${name}`)
    await releaseAgain(work, name, 'before')
    await on(cp.host_id).drainNodeOnHost(cp.machine_id, place.machine_id)
    // Whole: a worker that has left the Swarm is not admitted again, but joins with the next update.
    await work.settle(() => on(cp.host_id).removeNodeOnHost(cp.machine_id, place.machine_id))
  }
  await renewNode(work, name)
  await say(work, `joining ${name} to the Swarm`)
  await register(work, name)
  if (name === builder) await fill(work, name)
  await work.settle(() => platform.noteReplaced(id, name, work.operation_id))
  await say(work, `releasing the applications of ${name} again`)
  await releaseAgain(work, name, 'after') // those that had no room elsewhere
  await apply(id) // its services start again
}

/** Copies the images of the other registry to the one on a new machine: what it cannot, the next build does. */
async function fill(work: Server, name: string): Promise<void> {
  await say(work, `copying images to ${name}`)
  await copyImages(work.id, { tries: 1 })
}

/** Deletes the machine and its disk, and makes new ones. */
async function renewNode(work: Server, name: string): Promise<void> {
  const { id } = work
  const empty = () => platform.emptyNode(id, name)
  await say(work, `removing the machine ${name}`)
  // From here on there is nothing to go back to. After a failure the platform tries again: see lost-machines.ts.
  await keepSoFar(work)
  work.undo(empty)
  await emptyNode(work, name)
  await empty()
  await say(work, `making the machine ${name}`)
  await makeNode(work, name, empty)
}

/** A later failure or cancel takes back nothing of what was done so far. */
const keepSoFar = (work: Server): Promise<void> => work.settle(async () => undefined)

/**
 * Releases the applications of a worker again, each that can be: one that has no room or does not serve must not keep a
 * machine from being replaced.
 */
async function releaseAgain({ id, carryOut }: Server, name: string, when: string): Promise<void> {
  const apps = (await deployments.applicationsOn(id, name)) ?? []
  const release = async (app_id: string): Promise<void> => {
    const fields = { app_id, kind: 'move', message: `${name} is being replaced` }
    try {
      await carryOut({ kind: 'deployment' }, 'create', fields, { key: `${when} ${app_id}`, undo: null })
    } catch (error) {
      if (!isFailure(error)) throw error
    }
  }
  await together(apps.map(release))
}

/** The workers run on while there is no control plane. */
async function replaceControlPlane(work: Server): Promise<void> {
  const { id } = work
  const { cp, ...workers } = await platform.placesOfNodes(id)
  if (cp) await copyOnce(id, cp)
  await renewNode(work, 'cp')
  await ((await bringsBack(work)) ? takeUp : formAnew)(work, Object.keys(workers))
  await fill(work, 'cp')
}

/** The former control plane may still answer: the new one then knows all that it knew. */
async function copyOnce(id: string, cp: MachinePlace): Promise<void> {
  const rules = {
    scheduleToStartTimeout: '10 s',
    startToCloseTimeout: '1 minute',
    retry: { maximumAttempts: 1 },
  }
  await on(cp.host_id, rules as Partial<ActivityOptions>)
    .copySwarmOnHost(id, cp.machine_id)
    .catch(() => undefined)
}

// A copy that cannot be read is not waited for.
const triesToBringBack = 5

async function bringsBack(work: Server): Promise<boolean> {
  const { id } = work
  await say(work, 'bringing the Swarm back')
  const { host_id, machine_id, answers_within_sec } = await placeOf(id, 'cp')
  const trying = on(host_id, { retry: { initialInterval: '500 ms', maximumAttempts: triesToBringBack } })
  try {
    return await trying.bringBackSwarmOnHost(id, machine_id, answers_within_sec)
  } catch (error) {
    if (isCancellation(error)) throw error
    await on(host_id).forgetSwarmOnHost(machine_id) // the copy may be there by half
    return false
  }
}

/** Earlier histories lack what is done about workers that do not answer. */
const othersJoinLater = 'others join later'

/** The new control plane is the manager that the former one was: the workers and their applications run on. */
async function takeUp(work: Server, workers: string[]): Promise<void> {
  const { id } = work
  await register(work, 'cp')
  await work.settle(() => platform.noteReplaced(id, 'cp', work.operation_id))
  await say(work, 'looking for the workers')
  const answering = await platform.workersThatAnswer(id)
  for (const name of answering) await findAgain(work, name)
  if (patched(othersJoinLater))
    for (const name of workers)
      if (!answering.includes(name) && !(await isKnown(id, name))) await joinsWhenBack(id, name)
  await apply(id)
}

/** Nothing more is placed on a worker outside the Swarm. The platform has it join later: see lost-machines.ts. */
const joinsWhenBack = (id: string, name: string): Promise<void> =>
  platform.noteNode(id, name, { registered: false, joins_when_back: true })

/** Whether the manager knows a worker. */
async function isKnown(id: string, name: string): Promise<boolean> {
  const { cp, [name]: place } = await platform.placesOfNodes(id)
  if (!cp || !place) return true
  return on(cp.host_id).knowsNodeOnHost(cp.machine_id, place.machine_id)
}

/** Has the manager find a worker again. */
async function findAgain(work: Server, name: string): Promise<void> {
  if (await leavesUnlessKnown(work.id, name)) await register(work, name)
}

/**
 * A worker that has joined since the last copy is not known to the manager. It believes to be a member, and joins only once
 * it has left. False if there is no such worker.
 */
async function leavesUnlessKnown(id: string, name: string): Promise<boolean> {
  const { cp, [name]: place } = await platform.placesOfNodes(id)
  if (!cp || !place) return false
  if (!(await on(cp.host_id).knowsNodeOnHost(cp.machine_id, place.machine_id)))
    await on(place.host_id).leaveSwarmOnHost(place.machine_id)
  return true
}

/**
 * Forms a new Swarm. A worker that joins it ends its applications and starts them again, so the workers join one after
 * another.
 */
async function formAnew(work: Server, workers: string[]): Promise<void> {
  const { id } = work
  await say(work, 'forming a new Swarm')
  await register(work, 'cp')
  await work.settle(() => platform.noteReplaced(id, 'cp', work.operation_id))
  const outside = new Set(workers)
  const join = async (name: string): Promise<void> => {
    await say(work, `joining ${name} to the new Swarm`)
    await joinAnew(work, name)
    outside.delete(name)
  }
  work.undo(() => together([...outside].map((name) => joinsWhenBack(id, name))))
  const answering = await platform.workersThatAnswer(id)
  if (patched(othersJoinLater))
    for (const name of workers) if (!answering.includes(name)) await joinsWhenBack(id, name)
  for (const name of answering) await join(name)
}

/** Has a worker that was away join the Swarm, which does not know it. */
export async function joinLater(work: Server, name: string): Promise<void> {
  await say(work, `joining ${name} to the Swarm`)
  await leavesUnlessKnown(work.id, name)
  await joinAnew(work, name)
}

/** Has a worker join a new Swarm, and waits until its applications serve again. */
const joinAnew = (work: Server, name: string): Promise<void> =>
  atRest(work, name, async () => {
    const { id } = work
    await register(work, name)
    await apply(id)
    await together((await deployments.servingOn(id, name)).map((one) => awaitServing(id, one)))
  })

type Serving = Awaited<ReturnType<typeof deployments.servingOn>>[number]

/** Waits until an application serves again. One that does not had ended before, or fails by itself. */
async function awaitServing(id: string, { places, path, within_sec, routed }: Serving): Promise<void> {
  const { host_id, machine_id } = await deployments.managerOf(id)
  const waiting = on(host_id, { startToCloseTimeout: `${within_sec + 120} s` }) // its own limit ends it before
  try {
    await waiting.awaitServingOnHost(machine_id, places, { path }, within_sec)
  } catch (error) {
    if (!(error instanceof ActivityFailure && isFailure(error.cause, 'service_failed'))) throw error
    return
  }
  await balance(routed).catch(() => undefined) // a load balancer that is away finds them healthy when it is back
}
