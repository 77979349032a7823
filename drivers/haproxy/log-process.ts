import { readdirSync } from 'node:fs'
import { LogCarrier } from './log-carrier.ts'
import { makePlaces } from './places.ts'

// The reader of all access logs of one host: a process of its own, which outlives the host's worker, so that no line is
// lost while that restarts. Started as `node log-process.ts --readers FOLDER RUN`; it ends when it is killed.

const [folder = '', run = ''] = process.argv.slice(3)
const placeOf = makePlaces(folder, run)
const carriers = new Map<string, LogCarrier>()

function look(): void {
  for (const [id, carrier] of carriers) {
    carrier.publish()
    if (carrier.isCurrent()) continue
    carrier.close()
    carriers.delete(id)
  }
  for (const id of names()) {
    if (carriers.has(id)) continue
    try {
      carriers.set(id, new LogCarrier(placeOf(id)))
    } catch {
      // It is being made or removed.
    }
  }
}

function names(): string[] {
  try {
    return readdirSync(run)
  } catch {
    return []
  }
}

process.on('SIGHUP', () => {})
process.on('SIGINT', () => {}) // a terminal's Ctrl-C is for the worker
look()
setInterval(look, 500)
