import { once } from 'node:events'
import { EngineUnavailable } from '../errors.ts'
import { connectUnix } from '../system/unix-sockets.ts'
import type { Place } from './places.ts'

// The runtime API: a connection takes one line of commands, answers and closes.

const answersWithinMs = 10_000

async function exchange(socketPath: string, line: string): Promise<string> {
  let socket: Awaited<ReturnType<typeof connectUnix>> | undefined
  try {
    socket = await connectUnix(socketPath)
    socket.setTimeout(answersWithinMs, () => socket?.destroy(new Error('no answer in time')))
    const parts: Buffer[] = []
    socket.on('data', (part: Buffer) => parts.push(part))
    const closed = once(socket, 'close')
    socket.end(`${line}\n`)
    await closed
    if (socket.errored) throw socket.errored
    return Buffer.concat(parts).toString()
  } catch (error) {
    throw new EngineUnavailable('The load balancer’s process does not answer', error)
  } finally {
    socket?.destroy()
  }
}

/** Commands are made of checked names and numbers, so none contains a separator. */
export function ask(place: Place, commands: string[]): Promise<string> {
  if (commands.some((command) => /[;\n\r]/.test(command))) throw new Error('a command holds a separator')
  return exchange(place.admin, commands.join(';'))
}

export const askMaster = (place: Place, command: string): Promise<string> => exchange(place.master, command)

/** A row of `show stat`, by HAProxy's names of its columns. */
export type StatRow = Partial<Record<string, string>>

export function readTable(text: string): StatRow[] {
  const [head = '', ...lines] = text.replace(/^# /, '').trim().split('\n')
  const names = head.split(',')
  return lines
    .filter(Boolean)
    .map((line) => Object.fromEntries(line.split(',').map((value, index) => [names[index] ?? '', value])))
}

export const statsOf = async (place: Place): Promise<StatRow[]> =>
  readTable(await ask(place, ['show stat -1 4 -1']))
