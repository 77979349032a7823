import type { ContainerEngine } from '../../drivers/containers.ts'
import type { DialMachine } from '../../drivers/swarms.ts'

/** Reaches the engines inside a host's machines: by a command in the machine that joins its input and output to the engine. */
export const dialMachines =
  (engine: Pick<ContainerEngine, 'pipe'>): DialMachine =>
  (machineId) =>
    engine.pipe(machineId, ['socat', '-', 'UNIX-CONNECT:/run/docker.sock'])
