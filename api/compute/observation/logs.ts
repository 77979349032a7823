import type { ServerResponse } from 'node:http'
import type { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { z } from 'zod'
import type { LogLine } from '../../../lib/host-protocol.ts'
import { wholeLines } from './whole-lines.ts'

export const Flag = z.enum(['true', 'false']).transform((text) => text === 'true')

/** Which lines of a log a client can ask for. */
export const logsQuery = {
  lines: z.coerce.number().int().min(0).max(100_000).optional().describe('Number of most recent lines'),
  since: z.iso.datetime({ offset: true }).optional(),
  follow: Flag.default(false).describe('Stream new lines as server-sent events until the client disconnects'),
}
export interface LogsQuery {
  lines?: number | undefined
  since?: string | undefined
  follow: boolean
}

/** The same question to a host. */
export function askLogs({ lines, since, follow }: LogsQuery): URLSearchParams {
  const ask = new URLSearchParams()
  if (lines !== undefined) ask.set('lines', String(lines))
  if (since) ask.set('since', since)
  if (follow) ask.set('follow', 'true')
  return ask
}

// Proxies and browsers close a silent stream after a minute or so.
const keepAliveMs = 15_000

/** Sends a host's log lines to the client: as JSON lines, or when following as server-sent events. */
export async function sendLogs(
  lines: Readable,
  response: ServerResponse,
  { follow, timestamps }: { follow: boolean; timestamps: boolean },
): Promise<void> {
  response.writeHead(200, {
    'Content-Type': follow ? 'text/event-stream' : 'application/x-ndjson',
    'Cache-Control': 'no-store',
    'X-Accel-Buffering': 'no',
  })
  response.flushHeaders()
  const beat = follow ? setInterval(() => response.write(': still here\n\n'), keepAliveMs) : undefined
  const shape = follow ? event : jsonLine
  try {
    await pipeline(
      lines,
      async function* (source: Readable) {
        for await (const texts of wholeLines(source))
          yield texts.map((text) => shape(text, timestamps)).join('')
      },
      response,
    )
  } catch (error) {
    // The client has left, which is how following ends.
    if (!isAbort(error)) throw error
  } finally {
    clearInterval(beat)
  }
}

function jsonLine(text: string, timestamps: boolean): string {
  if (timestamps) return `${text}\n`
  const { stream, line } = JSON.parse(text) as LogLine
  return `${JSON.stringify({ stream, line })}\n`
}

/** The id lets a client continue where it stopped: `since` the last id. A remark has none. */
function event(text: string, timestamps: boolean): string {
  const { time } = JSON.parse(text) as Partial<LogLine>
  return `${time === undefined ? '' : `id: ${time}\n`}data: ${jsonLine(text, timestamps)}\n`
}

function isAbort(error: unknown): boolean {
  const { name, code } = (error ?? {}) as { name?: unknown; code?: unknown }
  return name === 'AbortError' || code === 'ERR_STREAM_PREMATURE_CLOSE'
}
