import type { Readable } from 'node:stream'

/**
 * The lines of a text, in batches as they come. Not by node:readline: when its input fails while nobody waits for a line,
 * as with a client that leaves, it ends the process.
 */
export async function* wholeLines(text: Readable): AsyncGenerator<string[]> {
  let rest = ''
  for await (const part of text.setEncoding('utf8')) {
    const lines = (rest + String(part)).split('\n')
    rest = lines.pop() ?? ''
    if (lines.length) yield lines
  }
  if (rest) yield [rest]
}
