import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { createServer } from 'node:net'
import { resolve } from 'node:path'

/**
 * Has this state folder to itself, until the process ends: what two processes did there at once, neither would know of.
 * Throws while another has it. The kernel gives the lock back however that one ends.
 */
export async function haveAlone(folder: string): Promise<void> {
  const name = createHash('sha256').update(resolve(folder)).digest('hex').slice(0, 16)
  const lock = createServer()
  lock.unref().listen(`\0keelson-host-${name}`) // an address without a file
  await once(lock, 'listening')
}
