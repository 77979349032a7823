import { join } from 'node:path'
import { EngineRefused } from '../errors.ts'
import { markOf } from '../linux/groups.ts'
import { userOf } from '../system/confinement.ts'

/** Paths of one disk. Each contains the disk's id between slashes, so that traces are found by id. */
export interface Place {
  id: string
  /** Of its daemon's control groups. */
  mark: string
  folder: string
  image: string
  snapshots: string
  snapshot(name: string): string
  /** Files that are being written; renamed when complete. */
  unfinished: string
  removed: string
  run: string
  /** The image as a plain file of the disk's size, through FUSE. */
  raw: string
  mount: string
  /** The name and the number of its loop device, which is found by them when the raw file was unmounted by others. */
  loop: string
  monitor: string
  /** The socket where a machine's QEMU connects to the disk's daemon, and the folder in which the daemon makes it. */
  plug: string
  plugFolder: string
  /** The user of a daemon that serves a machine. */
  user: number
  /** Where that daemon's view of the files is mounted. */
  view: string
  pidFile: string
  tls: string
  servingPidFile: string
}

// The kernel limits a unix socket's path to 107 bytes; an id takes 36, the socket's name 15.
const runLimit = 107 - 36 - 15

/** `folder` holds the disks; `run` holds sockets, pid files and mount points, and may be empty after a boot. */
export function makePlaces(folder: string, run: string): (id: string) => Place {
  if (Buffer.byteLength(run) > runLimit) throw new Error(`the path ${run} is too long for sockets`)
  return (id) => {
    if (!/^[a-z0-9][a-z0-9-]{0,35}$/.test(id)) throw new EngineRefused(`${id} is not a disk id`)
    const [kept, running] = [join(folder, id), join(run, id)]
    return {
      id,
      mark: markOf(folder),
      folder: kept,
      image: join(kept, 'disk.qcow2'),
      snapshots: join(kept, 'snapshots'),
      snapshot(name) {
        if (!/^[a-zA-Z0-9][\w.-]{0,62}$/.test(name)) throw new EngineRefused(`${name} is not a snapshot name`)
        return join(kept, 'snapshots', `${name}.qcow2`)
      },
      unfinished: join(kept, 'unfinished'),
      removed: join(folder, `.removed-${id}`),
      run: running,
      raw: join(running, 'raw'),
      mount: join(running, 'files'),
      loop: join(running, 'loop'),
      monitor: join(running, 'qmp.sock'),
      plug: join(running, 'plug', 'nbd.sock'),
      plugFolder: join(running, 'plug'),
      user: userOf(id),
      view: join(running, 'view'),
      pidFile: join(running, 'pid'),
      tls: join(running, 'tls'),
      servingPidFile: join(running, 'serving'),
    }
  }
}
