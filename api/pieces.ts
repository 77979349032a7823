/**
 * The same bytes in pieces of this size; the last one may be shorter. What a stream has brought before it fails is yielded,
 * too.
 */
export async function* pieces(bytes: AsyncIterable<Buffer>, size: number): AsyncGenerator<Buffer> {
  let some: Buffer[] = []
  let length = 0
  let fault: { error: unknown } | null = null
  try {
    for await (let chunk of bytes) {
      while (length + chunk.length >= size) {
        const rest = size - length
        yield Buffer.concat([...some, chunk.subarray(0, rest)])
        chunk = chunk.subarray(rest)
        some = []
        length = 0
      }
      if (chunk.length === 0) continue
      some.push(chunk)
      length += chunk.length
    }
  } catch (error) {
    fault = { error }
  }
  if (length > 0) yield Buffer.concat(some)
  if (fault) throw fault.error
}
