import { join } from 'node:path'
import { EngineRefused } from '../errors.ts'

/** Paths of one load balancer. Each contains its id between slashes, so that traces are found by id. */
export interface Place {
  id: string
  folder: string
  record: string
  config: string
  /** A configuration that is being checked. */
  candidate: string
  secrets: string
  logs: string
  run: string
  pidFile: string
  master: string
  admin: string
  /** Where the process writes its access log, until the log's reader has taken it. */
  log: string
  /** What the log's reader needs to know. */
  logSettings: string
  tallies: string
  /** Servers that were down before a reload. */
  servers: string
  /** The process's root folder: empty. */
  root: string
}

// The kernel limits a unix socket's path to 107 bytes; an id takes 36, and HAProxy binds `/master.sock.1234567.tmp`.
const runLimit = 107 - 36 - 1 - 24

/** `folder` holds configurations and logs; `run` holds sockets and pid files, and may be empty after a boot. */
export function makePlaces(folder: string, run: string): (id: string) => Place {
  if (Buffer.byteLength(run) > runLimit) throw new Error(`the path ${run} is too long for sockets`)
  return (id) => {
    if (!/^[a-z0-9][a-z0-9-]{0,35}$/.test(id)) throw new EngineRefused(`${id} is not a load balancer’s id`)
    const [kept, running] = [join(folder, id), join(run, id)]
    return {
      id,
      folder: kept,
      record: join(kept, 'load-balancer.json'),
      config: join(kept, 'haproxy.cfg'),
      candidate: join(kept, 'candidate.cfg'),
      secrets: join(kept, 'secrets'),
      logs: join(kept, 'logs'),
      run: running,
      pidFile: join(running, 'pid'),
      master: join(running, 'master.sock'),
      admin: join(running, 'admin.sock'),
      log: join(kept, 'requests.log'),
      logSettings: join(running, 'log.json'),
      tallies: join(running, 'tallies.json'),
      servers: join(running, 'servers'),
      root: join(running, 'root'),
    }
  }
}
