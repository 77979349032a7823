import { once } from 'node:events'
import { setTimeout as delay } from 'node:timers/promises'
import { EngineUnavailable } from '../errors.ts'
import { connectUnix } from '../system/unix-sockets.ts'
import type { Place } from './places.ts'

// The runtime API: a connection takes one line of commands, answers and closes.

const answersWithinMs = 10_000
const retryMs = 50

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

/**
 * Whether the worker answers. False at once if it has ended: nothing listens then. A worker that is only slow has some
 * seconds, because its connections would not survive a new start.
 */
export async function answers(place: Place): Promise<boolean> {
  const deadline = Date.now() + answersWithinMs
  do {
    try {
      if ((await ask(place, ['show version'])) !== '') return true
    } catch (error) {
      if (hasNoListener(error)) return false
    }
    await delay(retryMs)
  } while (Date.now() < deadline)
  return false
}

/** Whether the master takes commands: some milliseconds after its worker does. */
export const masterAnswers = (place: Place): Promise<boolean> =>
  askMaster(place, 'show version').then(
    () => true,
    () => false,
  )

const hasNoListener = (error: unknown): boolean =>
  error instanceof EngineUnavailable &&
  ['ECONNREFUSED', 'ENOENT'].includes((error.cause as NodeJS.ErrnoException).code ?? '')

/** A row of `show stat`, by HAProxy's names of its columns. */
export type StatRow = Partial<Record<(typeof columns)[number], string>>

const columns = ['pxname', 'svname', 'scur', 'status', 'check_status', 'check_duration'] as const

/** A table of a thousand routes has 400,000 values, so all others are left out. */
export function readTable(text: string): StatRow[] {
  const [head = '', ...lines] = text.replace(/^# /, '').trim().split('\n')
  const names = head.split(',')
  const at = columns.map((column) => [column, names.indexOf(column)] as const)
  const most = Math.max(...at.map(([, index]) => index)) + 1
  return lines.filter(Boolean).map((line) => {
    const values = line.split(',', most)
    return Object.fromEntries(at.map(([column, index]) => [column, values[index] ?? '']))
  })
}

const showServers = 'show stat -1 4 -1'

export const statsOf = async (place: Place): Promise<StatRow[]> => readTable(await ask(place, [showServers]))

/** The same, with the pid of the worker that says so. */
export async function statsOfWorker(place: Place): Promise<{ worker: string; rows: StatRow[] }> {
  const [info = '', table = ''] = (await ask(place, ['show info', showServers])).split('\n\n')
  return { worker: /^Pid: (\d+)$/m.exec(info)?.[1] ?? '', rows: readTable(table) }
}
