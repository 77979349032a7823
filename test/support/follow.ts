import type { Caller } from './clients/caller.ts'
import { facts } from './stack.ts'

/** Reads a log as server-sent events until `stop`. `path`: with `follow=true`. `event`: the id of each. */
export async function followLog<Line extends object>({ token }: Caller, path: string) {
  const gone = new AbortController()
  const headers = { authorization: `Bearer ${token}` }
  const answer = await fetch(`${facts().api_url}${path}`, { headers, signal: gone.signal })
  const lines: (Line & { event: string })[] = []
  const reading = (async () => {
    let text = ''
    for await (const chunk of answer.body ?? []) {
      text += Buffer.from(chunk).toString()
      const events = text.split('\n\n')
      text = events.pop() ?? ''
      for (const event of events) {
        const [, at = '', data] = /^(?:id: (.*)\n)?data: (.*)$/.exec(event) ?? []
        if (data) lines.push({ event: at, ...(JSON.parse(data) as Line) })
      }
    }
  })().catch(() => 'left')
  return {
    type: answer.headers.get('content-type'),
    lines,
    /** Resolves when the server ends the log, or `stop` is called. */
    ended: reading,
    async stop() {
      gone.abort()
      await reading
    },
  }
}
