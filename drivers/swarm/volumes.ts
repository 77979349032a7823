import { setTimeout as delay } from 'node:timers/promises'
import type Docker from 'dockerode'
import { asking, statusOf, unless } from '../docker/errors.ts'
import { EngineRefused } from '../errors.ts'
import type { DialMachine, MachineVolumes, RunningContainers } from '../swarms.ts'
import { engineOf, withEngine } from './dial.ts'
import { scratchLabel } from './scratch-engines.ts'
import { serviceLabel } from './services.ts'

const lookEveryMs = 500

/** Named volumes of machines. */
export const makeMachineVolumes = (dial: DialMachine): MachineVolumes => ({
  keep: (machineId, label, names, withinSec, signal) =>
    asking(async () => {
      const docker = engineOf<Docker>(dial, machineId)
      const deadline = performance.now() + withinSec * 1000
      for (;;) {
        const { Volumes } = await docker.listVolumes({ filters: { label: [`${label.name}=${label.value}`] } })
        const extra = Volumes.filter(({ Name }) => !names.includes(Name))
        const removed = await Promise.all(extra.map(({ Name }) => remove(docker, Name)))
        if (removed.every(Boolean)) return
        if (performance.now() > deadline) throw new EngineRefused('A volume is still in use')
        await delay(lookEveryMs, undefined, { signal })
      }
    }, signal),
})

/**
 * Removes containers that do not keep a volume: those of a service's former tasks, which the engine keeps for their output,
 * and the engine that filled the volume for an operation whose undo failed.
 */
async function forgetUsers(docker: Docker, volume: string): Promise<false> {
  const ended = { volume: [volume], label: [serviceLabel], status: ['exited', 'dead'] }
  for (const { Id } of await docker.listContainers({ all: true, filters: ended }))
    await unless([404, 409], docker.getContainer(Id).remove())
  const scratch = { volume: [volume], label: [scratchLabel] }
  for (const { Id } of await docker.listContainers({ all: true, filters: scratch }))
    await unless([404, 409], docker.getContainer(Id).remove({ force: true }))
  return false
}

/** Counts the containers of machines. */
export const makeRunningContainers =
  (dial: DialMachine): RunningContainers =>
  (machineId, { name, value }) =>
    asking(() =>
      withEngine(dial, machineId, async (docker: Docker) => {
        const filters = { label: [`${name}=${value}`], status: ['running', 'restarting', 'paused'] }
        return (await docker.listContainers({ filters })).length
      }),
    )

/** False if a container still uses the volume. */
async function remove(docker: Docker, name: string): Promise<boolean> {
  try {
    await docker.getVolume(name).remove()
    return true
  } catch (error) {
    if (statusOf(error) === 404) return true
    if (statusOf(error) === 409) return forgetUsers(docker, name)
    throw error
  }
}
