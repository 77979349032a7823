import { join } from 'node:path'
import { EngineRefused } from '../errors.ts'

/** Where everything of one machine is. Every path holds its id between slashes, by which its traces are found. */
export interface MachinePlace {
  id: string
  folder: string
  record: string
  /** Its own part of the root disk, over the image that it shares with others. */
  root: string
  /** Its memory while it is suspended: whole, since it has this name only then. */
  memory: string
  unfinishedMemory: string
  logs: string
  run: string
  pidFile: string
  /** Held as long as the machine runs, for its events. */
  monitor: string
  /** For calls that a busy engine must not hold up. */
  orders: string
  agent: string
  console: string
  /** What is published on the host for it. */
  ports: string
  /** A VM's settings for cloud-init. */
  seed: string
}

// The kernel's limit for a unix socket's path is 107 bytes; an id takes 36, and the name of the socket 13.
const runLimit = 107 - 36 - 13

/** `folder` keeps the machines; `run` holds sockets and pid files, and may be empty after a boot. */
export function makeMachinePlaces(folder: string, run: string): (id: string) => MachinePlace {
  if (Buffer.byteLength(run) > runLimit) throw new Error(`the path ${run} is too long for sockets`)
  return (id) => {
    if (!/^[a-z0-9][a-z0-9-]{0,35}$/.test(id)) throw new EngineRefused(`${id} is not a machine id`)
    const [kept, running] = [join(folder, id), join(run, id)]
    return {
      id,
      folder: kept,
      record: join(kept, 'machine.json'),
      root: join(kept, 'root.qcow2'),
      memory: join(kept, 'memory'),
      unfinishedMemory: join(kept, 'memory.part'),
      logs: join(kept, 'logs'),
      run: running,
      pidFile: join(running, 'pid'),
      monitor: join(running, 'qmp.sock'),
      orders: join(running, 'orders.sock'),
      agent: join(running, 'agent.sock'),
      console: join(running, 'console.sock'),
      ports: join(running, 'ports.json'),
      seed: join(kept, 'seed.qcow2'),
    }
  }
}
