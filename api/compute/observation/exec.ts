import { once } from 'node:events'
import type { RawData, WebSocket } from 'ws'
import { z } from 'zod'
import { ConsoleSize } from '../../../lib/host-protocol.ts'
import { StateConflict, Unavailable } from '../../../lib/problem.ts'
import { needUnmanaged } from '../../../models/managed.ts'
import { mine } from '../../../models/resources.ts'
import { byId, closed } from '../../fields.ts'
import { type Operation, operation } from '../../operation.ts'
import type { ShownInstance } from '../instances.ts'
import { connectHost } from './data-plane.ts'

// One command in an instance, to its end: a console that nobody types into.

const mostOutputBytes = 1024 * 1024
const mostCommandBytes = 8192
const longestSec = 300
// Wide, so that programs that fit their lines to a terminal cut none.
const size = { cols: ConsoleSize.shape.cols.maxValue ?? 80, rows: 24 }

/** A command and its arguments, of the console or of `exec`. */
export const Command = z
  .array(z.string())
  .min(1)
  .max(256)
  .refine(
    (words) => words.join('').length <= mostCommandBytes,
    `must have at most ${mostCommandBytes} characters`,
  )
  .refine((words) => !words.join('').includes('\0'), 'must have no NUL')

const ExecView = z
  .strictObject({
    exit_code: z
      .int()
      .nullable()
      .describe(
        'The exit code; above 128: a signal ended the command. Null: the command was ended after `timeout_sec`',
      ),
    output: z.string().describe('stdout and stderr together, as a terminal shows them; the first MiB'),
    truncated: z.boolean().describe('Whether there was more output'),
  })
  .meta({ id: 'Exec' })

export const instanceExec = (shown: ShownInstance, { plural, kind: { title } } = shown): Operation =>
  operation({
    method: 'POST',
    path: `/api/v1/${plural}/{id}/exec`,
    permission: `${plural}:console`,
    summary: `Run one command in a running ${title}, and get its output and exit code`,
    params: byId,
    body: z.strictObject({
      command: Command.describe('The program and its arguments. For a shell, send `["sh", "-c", …]`'),
      timeout_sec: z
        .int()
        .min(1)
        .max(longestSec)
        .default(30)
        .describe('Seconds after which the command is ended: by SIGHUP, and by SIGKILL a second later'),
    }),
    responses: { 200: ExecView },
    lasts: 'wait',
    takes_no_key: true,
    handle: async ({ caller, params, body, http: { response } }) => {
      const instance = await mine(shown.kind.resource, caller, params.id)
      needUnmanaged(title, instance)
      if (instance.status !== 'running' || !instance.host_id)
        throw new StateConflict('run a command', instance.status)
      const ask = new URLSearchParams(body.command.map((word): [string, string] => ['command', word]))
      ask.set('cols', String(size.cols))
      ask.set('rows', String(size.rows))
      const host = await connectHost(instance.host_id, params.id, 'console', ask)
      return outcomeOf(
        host,
        AbortSignal.any([closed(response), AbortSignal.timeout(body.timeout_sec * 1000)]),
      )
    },
  })

/** Resolves when the command ends, or at `signal`, which hangs it up. Throws Unavailable if its host fails. */
async function outcomeOf(host: WebSocket, signal: AbortSignal): Promise<z.output<typeof ExecView>> {
  const parts: Buffer[] = []
  let room = mostOutputBytes
  let truncated = false
  host.on('message', (data: RawData) => {
    const part = data as Buffer
    truncated ||= part.length > room
    if (room > 0) parts.push(part.subarray(0, room))
    room -= Math.min(room, part.length)
  })
  const hangUp = (): void => host.terminate()
  signal.addEventListener('abort', hangUp, { once: true })
  if (signal.aborted) hangUp()
  const ended = once(host, 'close') as Promise<[code: number, reason: Buffer]>
  host.resume()
  const [code, reason] = await ended
  signal.removeEventListener('abort', hangUp)
  const [, exit] = /^exit code (\d+)$/.exec(reason.toString()) ?? []
  if (exit === undefined && !signal.aborted) throw new Unavailable(`The command was cut off (${code})`)
  // A terminal ends lines by both characters.
  const output = Buffer.concat(parts).toString().replaceAll('\r\n', '\n')
  return { exit_code: exit === undefined ? null : Number(exit), output, truncated }
}
