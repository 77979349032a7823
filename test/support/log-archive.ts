import { once } from 'node:events'
import http from 'node:http'
import { createInterface } from 'node:readline'
import { createGunzip } from 'node:zlib'
import { LogPiece } from '../../models/compute/log-archive.ts'
import { everyTenant } from '../../models/tenant-scope.ts'
import type { Client } from './client.ts'
import { eventually } from './eventually.ts'
import { facts } from './stack.ts'

export interface ArchiveAnswer {
  status: number
  headers: http.IncomingHttpHeaders
  /** The output, uncompressed. */
  lines: AsyncIterable<string>
  /** `X-Archive-Complete`, after all lines were read. */
  complete: () => string | undefined
}

/** Not by `fetch`, which has no trailers. */
export async function askArchive(
  by: Client,
  id: string,
  { gzip = false, plural = 'containers' } = {},
): Promise<ArchiveAnswer> {
  const asking = http.request(`${facts().api_url}/api/v1/${plural}/${id}/logs/archive`, {
    headers: { authorization: `Bearer ${by.token}`, ...(gzip ? { 'accept-encoding': 'gzip' } : {}) },
  })
  asking.end()
  const [answer] = (await once(asking, 'response')) as [http.IncomingMessage]
  const input = gzip ? answer.pipe(createGunzip()) : answer
  if (gzip) answer.once('error', (error) => input.destroy(error))
  return {
    status: answer.statusCode ?? 0,
    headers: answer.headers,
    lines: createInterface({ input }),
    complete: () => answer.trailers['x-archive-complete'],
  }
}

/** All lines of a complete archive. */
export async function archived(by: Client, id: string, plural = 'containers'): Promise<string[]> {
  const { status, lines, complete } = await askArchive(by, id, { plural })
  if (status !== 200) throw new Error(`the archive of ${id}: ${status}`)
  const all: string[] = []
  for await (const line of lines) all.push(line)
  if (complete() !== 'true') throw new Error(`the archive of ${id} is not complete: ${all.at(-1)}`)
  return all
}

/** The pieces in the archive itself. */
export const piecesOf = (id: string) =>
  LogPiece.find({ instance_id: id })
    .setOptions(everyTenant)
    .sort({ engine_created_at: 1, engine_id: 1, seq: 1 })
    .lean()

/** Resolves when the archive has more than that many pieces. */
export const hasMore = (id: string, pieces: number) =>
  eventually(async () => (await piecesOf(id)).length > pieces)

/** Writes the numbered lines from `from` to `to` as fast as it can. */
export const writing = (from: number, to: number): string =>
  `awk 'BEGIN { for (i = ${from}; i <= ${to}; i++) printf "%d %0120d\\n", i, 0 }'`

/** Writes that many numbered lines, then runs `after`. */
export const writer = (lines: number, after = 'true') => writerBy(`${writing(1, lines)}; ${after}`)

export const writerBy = (script: string) => ({
  command: ['sh', '-c', script],
  cpu_cores: 1,
  log_cap_mib: 1,
})

/** The numbers at the start of the lines. */
export const numbers = (lines: string[]): number[] => lines.map((line) => Number.parseInt(line, 10))

export const upTo = (count: number): number[] => Array.from({ length: count }, (_, i) => i + 1)

/**
 * Describes where the lines differ from 1, 2, … `count`; null if they do not. A diff of a million numbers is
 * unreadable.
 */
export function faultIn(lines: string[], count: number): string | null {
  const wrong = numbers(lines).findIndex((number, i) => number !== i + 1)
  if (wrong >= 0) return `line ${wrong + 1} is ${lines[wrong]?.slice(0, 40)}`
  return lines.length === count ? null : `${lines.length} lines of ${count}`
}
