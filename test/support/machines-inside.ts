import { text } from 'node:stream/consumers'
import type Docker from 'dockerode'
import type { ContainerEngine } from '../../drivers/containers.ts'
import type { PipeMachine } from '../../drivers/swarms.ts'
import { engineOf } from '../../drivers/swarm/dial.ts'
import { dialMachines } from '../../worker/host/machine-engines.ts'
import type { Client } from './client.ts'
import { makeEngine, testPorts } from './containers.ts'
import { eventually } from './eventually.ts'
import { allHosts } from './hosts.ts'

// The insides of a deploy server's machines.

/** The engine of the host that a machine is on. */
async function outerEngine(client: Client, machineId: string): Promise<ContainerEngine> {
  // MongoDB may be away: tests look into machines while it is killed.
  const { status, body } = await eventually(async () => {
    const answer = await client.ask('GET', `/api/v1/containers/${machineId}`)
    return answer.status !== 503 && answer
  })
  if (status !== 200) throw new Error(`the machine ${machineId}: ${status} ${JSON.stringify(body)}`)
  const host_id = body['host_id'] as string | null
  const host = (await allHosts()).find(({ id }) => id === host_id)
  return makeEngine(testPorts, host_id ?? '', host?.docker_host)
}

/** Runs commands in machines, as their hosts do. */
export const pipeInto =
  (client: Client): PipeMachine =>
  async (machineId, command) =>
    (await outerEngine(client, machineId)).pipe(machineId, command)

/** The engine inside a machine. */
export const innerEngine = async (client: Client, machineId: string): Promise<Docker> =>
  engineOf<Docker>(dialMachines(await outerEngine(client, machineId)), machineId)

/** What a shell command in a machine says. */
export async function runOnMachine(client: Client, machineId: string, command: string): Promise<string> {
  const outer = await outerEngine(client, machineId)
  const stream = await outer.pipe(machineId, ['sh', '-c', `exec 2>&1; ${command}`])
  stream.end()
  return (await text(stream)).trim()
}

/** Sends a signal to the engine inside a machine. */
export const signalInnerEngine = (client: Client, machineId: string, signal: string): Promise<string> =>
  runOnMachine(client, machineId, `pkill -${signal} -x dockerd`)
