import { text } from 'node:stream/consumers'
import type Docker from 'dockerode'
import type { ContainerEngine } from '../../drivers/containers.ts'
import { makeDockerEngine } from '../../drivers/docker/engine.ts'
import { engineOf } from '../../drivers/swarm/dial.ts'
import { makeHostPorts } from '../../drivers/system/host-ports.ts'
import { dialMachines } from '../../worker/host/machine-engines.ts'
import type { Stack } from './stack.ts'

// The insides of a deploy server's machines.

/** The engine of the host that a machine is on. */
export async function hostEngine(stack: Stack, machineId: string): Promise<ContainerEngine> {
  const { body } = await stack.request<{ host_id: string }>('GET', `/api/v1/containers/${machineId}`)
  const ports = makeHostPorts({ address: '127.0.0.1', range: [28_890, 28_899] })
  return makeDockerEngine({ hostId: body.host_id, dockerHost: stack.dockerHost, ports })
}

/** The engine inside a machine. */
export const innerEngine = async (stack: Stack, machineId: string): Promise<Docker> =>
  engineOf<Docker>(dialMachines(await hostEngine(stack, machineId)), machineId)

/** Runs shell scripts in a machine, and returns what they say. Throws if one fails. */
export async function shellOf(stack: Stack, machineId: string) {
  const engine = await hostEngine(stack, machineId)
  return async (script: string, input?: Uint8Array): Promise<string> => {
    const whole = `exec 2>&1; set -e\n${script}\necho done`
    const stream = await engine.pipe(machineId, ['sh', '-c', whole])
    stream.end(input)
    const said = (await text(stream)).trim()
    if (!said.endsWith('done')) throw new Error(`a script failed in the machine: ${said.slice(-1000)}`)
    return said.slice(0, -'done'.length).trim()
  }
}
export type Shell = Awaited<ReturnType<typeof shellOf>>
