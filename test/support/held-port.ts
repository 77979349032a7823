import { once } from 'node:events'
import { createServer, type Server } from 'node:net'
import { publishedPort } from './stack.ts'

/**
 * Holds a port that the stack's hosts publish, as another program would: that one, counted from the end of the range, or
 * the next one that no instance has.
 */
export async function holdPort(fromEnd: number): Promise<{ port: number; held: Server }> {
  const port = publishedPort(fromEnd)
  const held = createServer().listen(port, '0.0.0.0')
  try {
    await once(held, 'listening')
    return { port, held }
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error
    return holdPort(fromEnd + 1)
  }
}
