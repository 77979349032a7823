import { once } from 'node:events'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { z } from 'zod'
import type { RawData, WebSocket } from 'ws'
import type { Terminal } from '../../drivers/containers.ts'
import { InstanceNotFound, InstanceNotRunning } from '../../drivers/errors.ts'
import type { InstanceEngine } from '../../drivers/instances.ts'
import { ConsoleMessage, ConsoleSize } from '../../lib/host-protocol.ts'
import type { Logger } from '../../lib/log.ts'
import { NotFound, Problem, StateConflict, Unavailable } from '../../lib/problem.ts'
import { closeCodes, sendWhole, type WebSockets } from '../../lib/websockets.ts'
import { endsWithin } from '../within.ts'

// Enough for a team on one instance; each console is a process in it.
const mostPerInstance = 10

const pingEveryMs = 30_000

// When the host stops. A client that does not read does not answer the close; a command may ignore that its terminal is
// gone, and what ends it runs in the tenant's container.
const clientsAnswerMs = 500
const commandsEndMs = 3_000

/** The command and the terminal size. Without a command, opens the serial console. */
export const ConsoleQuery = z.strictObject({ ...ConsoleSize.shape, command: z.array(z.string()) })

interface Parts {
  engine: Pick<InstanceEngine, 'exec' | 'console'>
  sockets: WebSockets
  log: Logger
}

export type Consoles = ReturnType<typeof makeConsoles>

/** Consoles of this host's instances: a command with a terminal, or the serial console. */
export function makeConsoles({ engine, sockets, log }: Parts) {
  const open = new Map<string, number>()
  const sessions = new Set<Promise<void>>()
  let closing: Promise<void> | null = null

  const count = (id: string, by: 1 | -1): void => {
    const now = (open.get(id) ?? 0) + by
    if (now) open.set(id, now)
    else open.delete(id)
  }

  async function serve(id: string, terminal: Terminal, socket: WebSocket): Promise<void> {
    try {
      await converse(terminal, socket)
    } catch (error) {
      // The console did not end normally: the engine failed or the client left.
      if (socket.readyState !== socket.CLOSED)
        log.warn({ err: error, instance_id: id }, 'a console broke off')
      socket.close(closeCodes.failed, 'the engine of the instance failed')
    }
    await hangUp(id, terminal)
  }

  async function hangUp(id: string, terminal: Terminal): Promise<void> {
    await terminal
      .close()
      .catch((error: unknown) =>
        log.warn({ err: error, instance_id: id }, 'a console’s command may still be running'),
      )
    count(id, -1)
  }

  /** The serial console as a terminal, without size and exit code. */
  async function serialLine(id: string): Promise<Terminal> {
    if (!engine.console) throw new NotFound('serial line of the instance')
    const stream = await engine.console(id)
    return {
      stream,
      resize: async () => {},
      exitCode: async () => 0,
      close: async () => void stream.destroy(),
    }
  }

  function keep(session: Promise<void>): void {
    sessions.add(session)
    void session.finally(() => sessions.delete(session))
  }

  async function end(): Promise<void> {
    sockets.close('the host is stopping')
    await endsWithin(clientsAnswerMs, Promise.all(sessions))
    sockets.terminate()
    if (!(await endsWithin(commandsEndMs, Promise.all(sessions))))
      log.warn({ consoles: sessions.size }, 'commands of consoles do not end: they may still be running')
  }

  return {
    /**
     * Opens a console and answers with the WebSocket. Throws NotFound, StateConflict, and a Problem if there are too
     * many.
     */
    async open(
      id: string,
      { command, ...size }: z.infer<typeof ConsoleQuery>,
      request: IncomingMessage,
      response: ServerResponse,
    ): Promise<void> {
      if (closing) throw new Unavailable('The host is stopping')
      if ((open.get(id) ?? 0) >= mostPerInstance) {
        const detail = `At most ${mostPerInstance} at once in one instance`
        throw new Problem(409, 'too_many_consoles', 'Too many consoles', detail)
      }
      count(id, 1)
      let terminal: Terminal
      try {
        terminal = command.length ? await engine.exec(id, command, size) : await serialLine(id)
      } catch (error) {
        count(id, -1)
        if (error instanceof InstanceNotFound) throw new NotFound('instance')
        if (error instanceof InstanceNotRunning) throw new StateConflict('open a console', 'stopped')
        throw error
      }
      if (closing) {
        keep(hangUp(id, terminal))
        throw new Unavailable('The host is stopping')
      }
      let accepted = false
      sockets.accept(request, response, (socket) => {
        accepted = true
        keep(serve(id, terminal, socket))
      })
      if (!accepted) keep(hangUp(id, terminal))
    },

    /** Ends all consoles at once, and takes no others. Their commands get some seconds to end, and may live on. */
    close(): Promise<void> {
      closing ??= end()
      return closing
    },
  }
}

/** Resolves when the command ends or the socket closes. Throws if the engine fails. */
async function converse(terminal: Terminal, socket: WebSocket): Promise<void> {
  const { stream } = terminal
  socket.on('error', () => {}) // `close` follows
  socket.on('close', () => stream.destroy())
  // If the command takes no input, the socket is not read. Only a failing ping then shows that the API is gone.
  const pings = setInterval(() => socket.ping(), pingEveryMs)
  socket.on('close', () => clearInterval(pings))
  stream.on('error', () => {}) // the loop below throws it
  socket.on('message', (data: RawData, isBinary: boolean) => {
    if (!isBinary) return resize(terminal, socket, data)
    if (stream.writable && !stream.write(data)) {
      socket.pause()
      void once(stream, 'drain').then(
        () => socket.resume(),
        () => socket.resume(),
      )
    }
  })
  try {
    for await (const part of stream) await sendWhole(socket, part as Buffer)
    const code = await terminal.exitCode()
    socket.close(closeCodes.ended, `exit code ${code}`)
  } catch (error) {
    if (socket.readyState === socket.OPEN) throw error
  }
}

function resize(terminal: Terminal, socket: WebSocket, data: RawData): void {
  const message = ConsoleMessage.safeParse(readJson(data as Buffer))
  if (!message.success) {
    socket.close(closeCodes.notUnderstood, 'a text frame is {"type": "resize", "cols", "rows"}')
    return
  }
  terminal
    .resize(message.data)
    .catch(() => socket.close(closeCodes.failed, 'the engine of the instance failed'))
}

function readJson(data: Buffer): unknown {
  try {
    return JSON.parse(data.toString())
  } catch {
    return undefined
  }
}
