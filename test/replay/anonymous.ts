/** Removes from a history, as JSON, what names the machine that recorded it: also in payloads, which are not encrypted. */
export function anonymous(part: unknown): void {
  if (typeof part !== 'object' || part === null) return
  const fields = part as Record<string, unknown>
  for (const [name, value] of Object.entries(fields)) {
    if (name === 'stackTrace' || name === 'identity') fields[name] = ''
    else if (name === 'data' && typeof value === 'string') fields[name] = withoutTrace(value)
    else anonymous(value)
  }
  // A worker's own queue has its process and machine in its name.
  if (fields['kind'] === 'TASK_QUEUE_KIND_STICKY') fields['name'] = 'sticky'
}

function withoutTrace(data: string): string {
  const text = Buffer.from(data, 'base64').toString()
  if (!text.startsWith('{')) return data
  const value: unknown = JSON.parse(text, (key, inner: unknown) => {
    if (key === 'stack_trace') return ''
    // The message of a failure in another process is its stack.
    return key === 'message' && typeof inner === 'string' ? inner.replace(/\n {4}at [^]*/, '') : inner
  })
  return Buffer.from(JSON.stringify(value)).toString('base64')
}
