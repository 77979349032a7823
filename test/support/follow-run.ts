import type { Caller } from './clients/caller.ts'
import { facts } from './stack.ts'

interface RunEvent {
  id: string | null
  event: string
  data: Record<string, unknown>
}

/** Reads the stream of a run until `stop`. `lastId`: continue behind this event. */
export async function followRun({ token }: Caller, workflow: string, run: string, lastId = '') {
  const gone = new AbortController()
  const answer = await fetch(`${facts().api_url}/api/v1/workflows/${workflow}/runs/${run}/stream`, {
    headers: { authorization: `Bearer ${token}`, ...(lastId && { 'last-event-id': lastId }) },
    signal: gone.signal,
  })
  const events: RunEvent[] = []
  const reading = (async () => {
    let text = ''
    const decoder = new TextDecoder()
    for await (const chunk of answer.body ?? []) {
      text += decoder.decode(chunk as Uint8Array, { stream: true })
      const whole = text.split('\n\n')
      text = whole.pop() ?? ''
      for (const one of whole) {
        const [, id = null, event, data] = /^(?:id: (.*)\n)?event: (.*)\ndata: (.*)$/.exec(one) ?? []
        if (event && data) events.push({ id, event, data: JSON.parse(data) as RunEvent['data'] })
      }
    }
  })().catch((error: unknown) => {
    if (!gone.signal.aborted) throw error
  })
  return {
    type: answer.headers.get('content-type'),
    events,
    /** The id of the last event that had one. */
    get lastId(): string {
      return events.findLast(({ id }) => id !== null)?.id ?? ''
    },
    /** What a node's model has said in an attempt. */
    textOf: (node: string, attempt: number): string =>
      events
        .filter(
          ({ event, data }) => event === 'token' && data['node'] === node && data['attempt'] === attempt,
        )
        .map(({ data }) => String(data['text']))
        .join(''),
    /** Resolves when the server ends the stream, or `stop` is called. */
    ended: reading,
    async stop() {
      gone.abort()
      await reading
    },
  }
}
