import { BackupDamaged, BackupFailed } from '../../drivers/errors.ts'
import {
  type Count,
  countsAtMost,
  type DumpReport,
  partBytes,
  type Verified,
} from '../../lib/backup-protocol.ts'

// What a dump says of itself, and how it is compared with what was restored.

/** Cuts a stream into parts of `partBytes`, each in pieces. */
export async function* inParts(chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer[]> {
  let held: Buffer[] = []
  let left = partBytes
  for await (let chunk of chunks) {
    for (; chunk.length >= left; left = partBytes) {
      yield [...held, chunk.subarray(0, left)]
      held = []
      chunk = chunk.subarray(left)
    }
    if (chunk.length > 0) held.push(chunk)
    left -= chunk.length
  }
  if (held.length > 0) yield held
}

/** The lines `count LEAST MOST NAME` among what a dump says. A most that is not known is `-`. */
export function parseCounts(errors: string): Count[] {
  const counts = errors.split('\n').flatMap((line) => {
    const [, least, most, name] = /^count (\d+) (\d+|-) (.+)$/.exec(line) ?? []
    return name === undefined
      ? []
      : [{ name, least: Number(least), most: most === '-' ? null : Number(most) }]
  })
  if (counts.length > countsAtMost)
    throw new BackupFailed(`the database has more than ${countsAtMost} tables`)
  return counts
}

/** The line `base SEGMENT MOMENT ARCHIVE` among what a copy of files says. */
export function parseBase(errors: string): DumpReport['base'] {
  const [, start, moment, archive_id] = /^base ([0-9A-F]{24}) (\S+) (\S*)$/m.exec(errors) ?? []
  return start && moment && archive_id !== undefined ? { start, moment, archive_id } : null
}

/** The lines `count N NAME`. */
export const parseFound = (output: string): Map<string, number> =>
  new Map(
    output.split('\n').flatMap((line): [string, number][] => {
      const [, count, name] = /^count (\d+) (.+)$/.exec(line) ?? []
      return name === undefined ? [] : [[name, Number(count)]]
    }),
  )

/**
 * Throws BackupDamaged unless all is there that the copy has, and nothing else. While clients write, tables may come and go,
 * too.
 */
export function compared(counts: Count[], found: Map<string, number>): Verified {
  for (const { name, least, most } of counts) {
    const there = found.get(name)
    if (there === undefined && least > 0) throw new BackupDamaged(`${name} is missing in the restored data`)
    if (there !== undefined && (there < least || there > (most ?? there)))
      throw new BackupDamaged(
        `${name} has ${there} rows after the restore, but had ${most ?? `at least ${least}`}`,
      )
  }
  const names = new Set(counts.map(({ name }) => name))
  const isExact = counts.every(({ most }) => most !== null)
  const more = [...found.keys()].find((name) => !names.has(name))
  if (isExact && more !== undefined)
    throw new BackupDamaged(`${more} is in the restored data, but not in the copy`)
  return foundIn(found)
}

/** What was restored, where nothing says what it is to have. */
export const foundIn = (found: Map<string, number>): Verified => ({
  by: 'restore',
  tables: found.size,
  rows: [...found.values()].reduce((sum, one) => sum + one, 0),
})

/** What a copy has that was only read. */
export const sumOf = (by: Verified['by'], counts: Count[]): Verified => ({
  by,
  tables: counts.length,
  rows: counts.reduce((sum, { least, most }) => sum + (most ?? least), 0),
})
