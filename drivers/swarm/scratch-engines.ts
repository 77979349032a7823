import { text } from 'node:stream/consumers'
import type Docker from 'dockerode'
import type { FreeBytes, ScratchEngines } from '../copies.ts'
import { asking, unless } from '../docker/errors.ts'
import { EngineUnavailable } from '../errors.ts'
import type { DialMachine, PipeMachine } from '../swarms.ts'
import { withEngine } from './dial.ts'

export const scratchLabel = 'keelson.scratch'
const nameOf = (id: string): string => `keelson-scratch-${id}`

/** Engines that are no services, in machines. */
export function makeScratchEngines(dial: DialMachine): ScratchEngines {
  const withDocker = <T>(machineId: string, work: (docker: Docker) => Promise<T>): Promise<T> =>
    asking(() => withEngine(dial, machineId, work))

  return {
    start: (machineId, { id, image, env, command, cpu_cores, memory_mib, data_path, volume }) =>
      withDocker(machineId, async (docker) => {
        await removeIn(docker, id)
        const { name, labels } = volume ?? { name: nameOf(id), labels: {} }
        await unless([404], docker.getVolume(name).remove())
        const container = await docker.createContainer({
          name: nameOf(id),
          Image: image,
          ...(command.length ? { Cmd: command } : {}),
          Env: Object.entries(env).map(([key, value]) => `${key}=${value}`),
          Labels: { [scratchLabel]: id },
          HostConfig: {
            NetworkMode: 'none',
            // As Swarm's tasks have it: commands can be run only where the first process is still root's.
            Init: true,
            NanoCpus: Math.round(cpu_cores * 1e9),
            Memory: memory_mib * 1024 ** 2,
            Mounts: [
              {
                Type: 'volume',
                Source: name,
                Target: data_path,
                VolumeOptions: {
                  NoCopy: false,
                  Labels: { [scratchLabel]: id, ...labels },
                  DriverConfig: { Name: 'local', Options: {} },
                },
              },
            ],
          },
        })
        await container.start()
      }),

    stop: (machineId, id, graceSec) =>
      withDocker(machineId, async (docker) => {
        await unless([304, 404], docker.getContainer(nameOf(id)).stop({ t: graceSec }))
      }),

    remove: (machineId, id) => withDocker(machineId, (docker) => removeIn(docker, id)),

    endOf: (machineId, id) =>
      withDocker(machineId, async (docker) => {
        const container = docker.getContainer(nameOf(id))
        const state = (await unless([404], container.inspect()))?.State
        if (!state || state.Running || state.Status !== 'exited') return null
        const output = await container.logs({ stdout: true, stderr: true, tail: 5 })
        return { exit_code: state.ExitCode, output: textOfLog(output) }
      }),

    containerOf: (machineId, id) => ({ machine_id: machineId, label: { name: scratchLabel, value: id } }),
  }
}

async function removeIn(docker: Docker, id: string): Promise<void> {
  await unless([404, 409], docker.getContainer(nameOf(id)).remove({ force: true }))
  await unless([404], docker.getVolume(nameOf(id)).remove())
}

const free = `df --output=avail -B1 "$(docker info --format '{{.DockerRootDir}}')"`

/** Of the disk that has the volumes. */
export const makeFreeBytes =
  (pipe: PipeMachine): FreeBytes =>
  async (machineId) => {
    const stream = await pipe(machineId, ['sh', '-c', free])
    stream.end()
    // A machine that ends says nothing, which is not that nothing is free.
    const last = (await text(stream)).trim().split('\n').at(-1) ?? ''
    if (!/^\d+$/.test(last)) throw new EngineUnavailable('The size of the disk is not known')
    return Number(last)
  }

const headerBytes = 8

/** The text in the engine's frames: each has a header with the stream's number and the length. */
function textOfLog(frames: Buffer): string {
  const texts: string[] = []
  for (let at = 0; at + headerBytes <= frames.length; ) {
    const end = at + headerBytes + frames.readUInt32BE(at + 4)
    texts.push(frames.toString('utf8', at + headerBytes, end))
    at = end
  }
  return texts.join('')
}
