import { once } from 'node:events'
import { createServer } from 'node:net'
import { resolve } from 'node:path'
import { digest } from '../../drivers/system/digest.ts'

/**
 * Locks the state folder until this process ends, because two processes would overwrite each other's state. Throws if
 * another process holds the lock. The kernel releases it when the process ends.
 */
export async function haveAlone(folder: string): Promise<void> {
  const name = digest(resolve(folder), 16)
  const lock = createServer()
  lock.unref().listen(`\0keelson-host-${name}`) // an abstract address, without a file
  await once(lock, 'listening')
}
