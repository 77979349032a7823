import { Container } from '../../models/compute/containers.ts'
import { everyTenant } from '../../models/tenant-scope.ts'
import type { Client, DeployServerBody } from './client.ts'
import { engine } from './engine.ts'
import { eventually } from './eventually.ts'
import { isLong } from './long.ts'
import { innerEngine } from './machines-inside.ts'
import { platform } from './platform.ts'

// What the kill tests of deploy servers kill, and what may not be left.

export const roles = ['worker', 'host', 'api', 'temporal', 'mongodb'] as const
const machines = ['w1', 'cp'] as const

export type Victim = (typeof roles)[number] | (typeof machines)[number]

/** Processes of the platform, and in the long form machines of a deploy server: one takes most of a minute to be back. */
export const victims: Victim[] = isLong ? [...roles, ...machines] : [...roles]

export const isMachine = (victim: Victim): victim is (typeof machines)[number] =>
  machines.some((machine) => machine === victim)

/** Kills (-9) a machine that is a container, as if the last kill were long ago: the platform pauses between restarts. */
export async function killMachine(id: string): Promise<void> {
  await Container.updateOne({ _id: id }, { $set: { repairs: null } }).setOptions(everyTenant)
  await engine.kill(id)
}

/**
 * Kills (-9) a process of the platform, which is started again, or a machine as soon as it runs, which the platform itself
 * starts again. Resolves without a kill if `isOver` says so before there is such a machine.
 */
export async function kill(
  victim: Victim,
  client: Client,
  server: string,
  isOver: () => Promise<boolean> = async () => false,
): Promise<void> {
  if (!isMachine(victim)) return platform.restartKilled(victim)
  await eventually(async () => {
    const { control_plane, workers } = await client.deployServers.get(server)
    const node = [control_plane, ...workers].find((one) => one?.name === victim)
    const isKilled = await killMachine(node?.machine_id ?? '').then(
      () => true,
      () => false, // it does not run, or is not made yet
    )
    return isKilled || isOver()
  })
}

/** The volumes and services that the engines of a deploy server's machines have, by the node's name. */
export async function leftOn(
  client: Client,
  { control_plane, workers }: DeployServerBody,
): Promise<string[]> {
  const found = [control_plane, ...workers].map(async (node) => {
    if (!node) return []
    const inner = await innerEngine(client, node.machine_id)
    const { Volumes } = await inner.listVolumes()
    const services = node.name === 'cp' ? await inner.listServices() : []
    const volumes = Volumes.map(({ Name }) => Name).filter((name) => name !== 'keelson-registry')
    return [...volumes, ...services.map(({ Spec }) => Spec?.Name ?? '')].map((one) => `${node.name}: ${one}`)
  })
  return (await Promise.all(found)).flat().toSorted()
}
