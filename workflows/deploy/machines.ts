import { ApplicationFailure, proxyLocalActivities, sleep } from '@temporalio/workflow'
import type { DeployServerActivities, MachinePlace } from '../../activities/deploy/deploy-servers.ts'
import type { DeploymentActivities } from '../../activities/deploy/deployments.ts'
import { isFailure } from '../carry-out.ts'
import type { Work } from '../durable.ts'
import { on } from '../hosts.ts'
import { remove } from '../remove.ts'
import { awaitAnswers, balance } from './deployments.ts'
import { together } from '../together.ts'

// What the stories of deploy servers do with one machine.

export const platform = proxyLocalActivities<DeployServerActivities>({
  startToCloseTimeout: '10 s', // a few queries
  retry: { initialInterval: '100 ms', maximumInterval: '5 s' },
})

export const deployments = proxyLocalActivities<DeploymentActivities>({
  startToCloseTimeout: '10 s', // a few queries
  retry: { initialInterval: '100 ms', maximumInterval: '5 s' },
})

export type Server = Work<unknown>

export async function say({ id, progress }: Server, words: string): Promise<void> {
  progress(words)
  await platform.noteInitStep(id, words)
}

/** The host and address of a node’s machine. Throws if it is not on a host. */
export async function placeOf(id: string, name: string): Promise<MachinePlace> {
  const place = (await platform.placesOfNodes(id))[name]
  if (place) return place
  throw ApplicationFailure.nonRetryable(`The machine ${name} is not on a host`, 'machine_missing')
}

/** Makes the disk and the machine of a node, or finds them. */
export async function makeNode(
  { id, carryOut, undo }: Server,
  name: string,
  takeBack = () => platform.dropNode(id, name),
): Promise<void> {
  let isThere = false // a worker that only has to join again stays
  undo(async () => isThere || takeBack())
  const { disk, machine, disk_id: diskThere, machine_id: machineThere } = await platform.planNode(id, name)
  isThere = machineThere !== null
  const disk_id = diskThere ?? (await carryOut({ kind: 'disk' }, 'create', disk, { key: `disk ${name}` }))
  await platform.noteNode(id, name, { disk_id })
  if (machineThere) return
  const at = [{ disk_id, ...machine.at }]
  const fields = { ...machine.fields, disks: at }
  const machine_id = await carryOut({ kind: machine.kind }, 'create', fields, { key: `machine ${name}` })
  await platform.noteNode(id, name, { machine_id })
}

/** A machine that cannot join after this time never will, as in a network that leads nowhere. */
const joinsWithinSec = 30 * 60

/** Has the machine join the Swarm, or finds it there; the control plane forms it. */
export async function register(work: Server, name: string): Promise<void> {
  const { id } = work
  const { host_id, machine_id, ip_address, answers_within_sec } = await placeOf(id, name)
  const within = { scheduleToCloseTimeout: `${answers_within_sec + joinsWithinSec} s` }
  if (name === 'cp') await on(host_id, within).formSwarmOnHost(id, machine_id, ip_address, answers_within_sec)
  else {
    const manager = await placeOf(id, 'cp')
    const its = [machine_id, ip_address, manager.ip_address, answers_within_sec] as const
    await on(host_id, within).joinSwarmOnHost(id, ...its)
    await on(manager.host_id, within).admitNodeOnHost(manager.machine_id, machine_id, ip_address, id)
  }
  await platform.noteNode(id, name, { registered: true, joins_when_back: false })
}

/**
 * Runs `step`, which ends what runs on a worker. The load balancer sends it no requests meanwhile, where another worker
 * serves, and those that are open are answered before.
 */
export async function atRest({ id, undo }: Server, name: string, step: () => Promise<void>): Promise<void> {
  const rest = async (resting: boolean): Promise<number | null> => {
    await platform.noteNode(id, name, { resting })
    const routed = await deployments.weighTargets(id)
    await balance(routed).catch(() => undefined) // a load balancer that is away finds its routes when it is back
    return routed?.drain_sec ?? null
  }
  undo(() => rest(false))
  const drain_sec = await rest(true)
  if (drain_sec !== null) await awaitAnswers(drain_sec)
  await step()
  await rest(false)
}

// A VM's services end within this time, also without KVM.
const stopsWithinSec = 120

/** Restarts a machine, and waits until it is back in the Swarm. What runs on it is away meanwhile. */
export async function restart(
  work: Server,
  name: string,
  machine: { kind: string; id: string },
): Promise<void> {
  await say(work, `restarting ${name}`)
  await atRest(work, name, async () => {
    await work.carryOut(machine, 'reboot', { grace_sec: stopsWithinSec })
    await register(work, name)
  })
}

// A deployment ends within its limits, so the looks become rare. These take almost two hours.
const firstWaitMs = 300
const longestWaitMs = 15_000
const looksAtMost = 480

/**
 * The applications that serve from a worker, once no deployment of them is under way: a release that was placed there before
 * serves from there afterwards.
 */
async function settledOn(id: string, name: string): Promise<string[]> {
  let waitMs = firstWaitMs
  for (let looks = 1; looks <= looksAtMost; looks++) {
    const apps = await deployments.applicationsOn(id, name, true)
    if (apps !== null) return apps
    await sleep(waitMs)
    waitMs = Math.min(waitMs * 2, longestWaitMs)
  }
  throw staysBusy(name)
}

const staysBusy = (name: string) =>
  ApplicationFailure.nonRetryable(`Deployments keep using ${name}`, 'worker_in_use')

// A deployment of the tenant's own may take the place of a move, and fail.
const triesToMove = 5

/** Releases the applications of a worker again, on the workers that stay. Throws why one cannot move. */
async function moveApplications({ id, carryOut }: Server, name: string): Promise<void> {
  for (let tries = 1; tries <= triesToMove; tries++) {
    const apps = await settledOn(id, name)
    if (apps.length === 0) return
    const move = async (app_id: string): Promise<void> => {
      const fields = { app_id, kind: 'move', message: `${name} is being removed` }
      const rules = { key: `move ${app_id} from ${name}, ${tries}`, undo: null }
      try {
        await carryOut({ kind: 'deployment' }, 'create', fields, rules)
      } catch (error) {
        const isOther = ['superseded', 'cancelled', 'state_conflict', 'not_found'].some((code) =>
          isFailure(error, code),
        )
        if (!isOther) throw error // the next look shows how it ended
      }
    }
    await together(apps.map(move))
  }
  if ((await settledOn(id, name)).length > 0) throw staysBusy(name)
}

/**
 * Takes a worker out of the Swarm, and deletes its machine with the disk. It is not `registered` meanwhile: until it has left
 * the Swarm a cancel or failure admits it again, and where that fails the next update does.
 */
export async function removeNode(work: Server, name: string): Promise<void> {
  const { id, undo, settle } = work
  const { cp: manager, [name]: place } = await platform.placesOfNodes(id)
  if (manager && place) {
    undo(() => readmit(id, name, manager, place).catch(() => undefined))
    await platform.noteNode(id, name, { registered: false }) // nothing more is placed there
    await say(work, `moving the applications away from ${name}`)
    await moveApplications(work, name)
    await on(manager.host_id).drainNodeOnHost(manager.machine_id, place.machine_id)
    await say(work, `removing ${name}`)
    await settle(() => on(manager.host_id).removeNodeOnHost(manager.machine_id, place.machine_id))
  }
  // Whole: a record without its machine, or a machine without its record, has nothing to go back to.
  await settle(() => deleteNode(work, name))
}

/** Lets a worker take applications again, after a failure or a cancel. */
export async function readmit(
  id: string,
  name: string,
  manager: MachinePlace,
  place: MachinePlace,
): Promise<void> {
  // The worker or its control plane may be lost: then the wait is for nothing.
  const once = on(manager.host_id, { scheduleToStartTimeout: '1 minute', retry: { maximumAttempts: 1 } })
  await once.admitNodeOnHost(manager.machine_id, place.machine_id, place.ip_address, id)
  await platform.noteNode(id, name, { registered: true })
}

async function deleteNode(work: Server, name: string): Promise<void> {
  await emptyNode(work, name)
  await platform.dropNode(work.id, name)
}

/** Deletes a node’s machine and disk. On a host that does not answer they end when it is back. */
export async function emptyNode(work: Server, name: string): Promise<void> {
  const node = await platform.nodeAt(work.id, name)
  if (node?.machine_id) await remove(work, node.machine_kind, node.machine_id)
  if (node?.disk_id) await remove(work, 'disk', node.disk_id)
}
