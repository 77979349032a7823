import { setTimeout as delay } from 'node:timers/promises'
import type { MachineHost } from './host.ts'
import type { Link } from './links.ts'
import { statusOf } from './memory.ts'

// When a write to a disk of a machine finds no room on the host, QEMU stops the machine, and repeats the write once the machine
// goes on. The guest sees no error: its clock stands still meanwhile.

const tryEveryMs = 5_000

/** Has a stopped machine go on, again and again until its writes find room or it ends. Then sets its clock. */
export async function awaitRoom(host: MachineHost, id: string, link: Link): Promise<void> {
  host.changed(id)
  let stops: number
  do {
    stops = link.stops
    // Only a write that found no room stops a machine so: others may have stopped it since.
    if ((await statusOf(link.monitor)) === 'io-error') await link.monitor.execute('cont')
    await delay(tryEveryMs, undefined, { ref: false })
  } while (link.stops > stops)
  link.full.clear()
  host.changed(id)
  if (link.agent.isReady) await link.agent.setClock()
}
