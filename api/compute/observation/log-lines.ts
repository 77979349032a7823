import { afterTorn } from '../../../lib/log-torn.ts'

// Turns the entries of an engine's log files back into lines.

interface Entry {
  log: string
  stream: string
  time: string
}

/** Turns the bytes of log files into output of some form. */
export interface Joiner<T> {
  /** Takes entries as bytes, in chunks of any length. Returns the lines that these bytes complete. */
  push(bytes: Buffer): T
  /** Returns the rest, which has no line end and will get none. */
  end(): T
  /** A line in place of missing output. */
  remark(words: string): T
}

const said = (words: string): string => `[keelson: ${words}]\n`
/** In place of a damaged entry. */
export const damaged =
  'output may be missing here: its host could not write all of it, because its disk was full or its engine was killed'

const newline = 0x0a

/** Cuts bytes into entries; null for one that is damaged. On its line, the next entry may follow. */
export function makeEntryReader() {
  let rest: Buffer = Buffer.alloc(0)
  return {
    push(bytes: Buffer): (Entry | null)[] {
      const end = bytes.lastIndexOf(newline) + 1
      if (!end) {
        rest = Buffer.concat([rest, bytes])
        return []
      }
      const whole = Buffer.concat([rest, bytes.subarray(0, end)])
      rest = bytes.subarray(end)
      return whole.toString().split('\n').filter(Boolean).flatMap(entriesOf)
    },
    /** Whether the last entry was not complete. */
    end(): boolean {
      const isCut = rest.length > 0
      rest = Buffer.alloc(0)
      return isCut
    },
  }
}

function entriesOf(line: string): (Entry | null)[] {
  const entry = entryOf(line)
  if (entry) return [entry]
  const next = afterTorn(line)
  const following = next === null ? null : entryOf(next)
  return following ? [null, following] : [null]
}

function entryOf(line: string): Entry | null {
  try {
    return JSON.parse(line) as Entry
  } catch {
    return null
  }
}

/** Bounds the memory. A longer line may have the other stream's output in its middle. */
const longestJoined = 1024 * 1024

/**
 * Makes the output of a container as it wrote it. Joins the long lines that the engine cut, for each stream. Calls `onMissing` for
 * each damaged entry.
 */
export function makeLineJoiner(onMissing: () => void = () => {}): Joiner<Buffer> {
  const reader = makeEntryReader()
  const open = new Map<string, string>()

  function lost(): string {
    onMissing()
    return said(damaged)
  }

  function textOf(entry: Entry | null): string {
    if (!entry) return lost()
    const { log, stream } = entry
    const begun = open.get(stream)
    if (begun === undefined && log.endsWith('\n')) return log
    const joined = (begun ?? '') + log
    if (log.endsWith('\n') || joined.length > longestJoined) {
      open.delete(stream)
      return joined
    }
    open.set(stream, joined)
    return ''
  }

  return {
    push(bytes) {
      let text = ''
      for (const entry of reader.push(bytes)) text += textOf(entry)
      return Buffer.from(text)
    },

    end() {
      const text = [...open.values()].join('') + (reader.end() ? lost() : '')
      open.clear()
      return Buffer.from(text)
    },

    remark: (words) => Buffer.from(said(words)),
  }
}
