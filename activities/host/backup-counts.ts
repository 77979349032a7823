import { BackupDamaged, BackupFailed } from '../../drivers/errors.ts'
import { type Count, countsAtMost, partBytes, type Verified } from '../../lib/backup-protocol.ts'

// What a dump says of itself, and how it is compared with what was restored.

/** Cuts a stream into parts of `partBytes`. */
export async function* inParts(chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let held: Buffer[] = []
  let length = 0
  for await (const chunk of chunks) {
    held.push(chunk)
    length += chunk.length
    if (length < partBytes) continue
    const all = Buffer.concat(held)
    let from = 0
    for (; all.length - from >= partBytes; from += partBytes) yield all.subarray(from, from + partBytes)
    held = [all.subarray(from)]
    length = all.length - from
  }
  if (length > 0) yield Buffer.concat(held)
}

/** The lines `count LEAST MOST NAME` among what a dump says. */
export function parseCounts(errors: string): Count[] {
  const counts = errors.split('\n').flatMap((line) => {
    const [, least, most, name] = /^count (\d+) (\d+) (.+)$/.exec(line) ?? []
    return name === undefined ? [] : [{ name, least: Number(least), most: Number(most) }]
  })
  if (counts.length > countsAtMost)
    throw new BackupFailed(`the database has more than ${countsAtMost} tables`)
  return counts
}

/** The lines `count N NAME`. */
export const parseFound = (output: string): Map<string, number> =>
  new Map(
    output.split('\n').flatMap((line): [string, number][] => {
      const [, count, name] = /^count (\d+) (.+)$/.exec(line) ?? []
      return name === undefined ? [] : [[name, Number(count)]]
    }),
  )

/** Throws BackupDamaged unless all is there that the copy has, and nothing else. */
export function compared(counts: Count[], found: Map<string, number>): Verified {
  for (const { name, least, most } of counts) {
    const there = found.get(name)
    if (there === undefined && least > 0) throw new BackupDamaged(`${name} is missing in what was restored`)
    if (there !== undefined && (there < least || there > most))
      throw new BackupDamaged(`${name} has ${there} rows when it is restored, and had ${most}`)
  }
  const names = new Set(counts.map(({ name }) => name))
  const more = [...found.keys()].find((name) => !names.has(name))
  if (more !== undefined) throw new BackupDamaged(`${more} is in what was restored, and not in the copy`)
  const rows = [...found.values()].reduce((sum, one) => sum + one, 0)
  return { by: 'restore', tables: counts.length, rows }
}

/** What a copy has that was only read. */
export const sumOf = (by: Verified['by'], counts: Count[]): Verified => ({
  by,
  tables: counts.length,
  rows: counts.reduce((sum, { most }) => sum + most, 0),
})
