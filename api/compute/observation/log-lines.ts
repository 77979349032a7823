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
export const damaged = 'an entry is damaged' // the engine was killed while it wrote

const newline = 0x0a

/** Cuts bytes into entries; null for one that is damaged. */
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
      return whole.toString().split('\n').filter(Boolean).map(entryOf)
    },
    /** Whether the last entry was not complete. */
    end(): boolean {
      const isCut = rest.length > 0
      rest = Buffer.alloc(0)
      return isCut
    },
  }
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

/** Makes the output of a container as it wrote it. Joins the long lines that the engine cut, for each stream. */
export function makeLineJoiner(): Joiner<Buffer> {
  const reader = makeEntryReader()
  const open = new Map<string, string>()

  function textOf(entry: Entry | null): string {
    if (!entry) return said(damaged)
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
      const text = [...open.values()].join('') + (reader.end() ? said(damaged) : '')
      open.clear()
      return Buffer.from(text)
    },

    remark: (words) => Buffer.from(said(words)),
  }
}
