import { join } from 'node:path'
import { EngineRefused } from '../errors.ts'
import { userOf } from '../system/confinement.ts'

/** Paths of one machine. Each contains the machine's id between slashes, so that traces are found by id. */
export interface MachinePlace {
  id: string
  /** The user and group of its QEMU. */
  user: number
  folder: string
  record: string
  /** The machine's overlay of its shared base image. */
  root: string
  /** The memory of a suspended machine. Has this name only when complete. */
  memory: string
  unfinishedMemory: string
  logs: string
  run: string
  pidFile: string
  /** Held open for events while the machine runs. */
  monitor: string
  /** A second monitor, for the helper. */
  orders: string
  agent: string
  console: string
  /** The published ports, for the helper. */
  ports: string
  /** Where QEMU's view of the files is mounted. */
  view: string
  /** A VM's cloud-init settings. */
  seed: string
}

// The kernel limits a unix socket's path to 107 bytes; an id takes 36, the socket's name 13.
const runLimit = 107 - 36 - 13

/** `folder` holds the machines; `run` holds sockets and pid files, and may be empty after a boot. */
export function makeMachinePlaces(folder: string, run: string): (id: string) => MachinePlace {
  if (Buffer.byteLength(run) > runLimit) throw new Error(`the path ${run} is too long for sockets`)
  return (id) => {
    if (!/^[a-z0-9][a-z0-9-]{0,35}$/.test(id)) throw new EngineRefused(`${id} is not a machine id`)
    const [kept, running] = [join(folder, id), join(run, id)]
    return {
      id,
      user: userOf(id),
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
      view: join(running, 'view'),
      seed: join(kept, 'seed.qcow2'),
    }
  }
}
