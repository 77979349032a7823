// Turns the entries of an engine's log files back into the container's output.

interface Entry {
  log: string
  stream: string
}

/** A line in place of missing output. */
export const remark = (words: string): Buffer => Buffer.from(`[keelson: ${words}]\n`)
const damaged = '[keelson: an entry is damaged]\n'

const newline = 0x0a
/** Bounds the memory. A longer line may have the other stream's output in its middle. */
const longestJoined = 1024 * 1024

export type LineJoiner = ReturnType<typeof makeLineJoiner>

/** Takes entries as bytes, in chunks of any length. Joins the long lines that the engine cut, for each stream. */
export function makeLineJoiner() {
  let rest: Buffer = Buffer.alloc(0)
  const open = new Map<string, string>()

  function textOf(line: string): string {
    let entry: Entry
    try {
      entry = JSON.parse(line) as Entry
    } catch {
      return damaged // the engine was killed while it wrote
    }
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
    /** Returns the lines that these bytes complete. */
    push(bytes: Buffer): Buffer {
      const end = bytes.lastIndexOf(newline) + 1
      const whole = Buffer.concat([rest, bytes.subarray(0, end)])
      if (!end) {
        rest = Buffer.concat([rest, bytes])
        return Buffer.alloc(0)
      }
      rest = bytes.subarray(end)
      let text = ''
      for (const line of whole.toString().split('\n')) if (line) text += textOf(line)
      return Buffer.from(text)
    },

    /** Returns the rest, which has no line end and will get none. */
    end(): Buffer {
      const cut = rest.length ? damaged : ''
      const text = [...open.values()].join('') + cut
      rest = Buffer.alloc(0)
      open.clear()
      return Buffer.from(text)
    },
  }
}
