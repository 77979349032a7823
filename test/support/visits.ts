import { request } from 'node:http'

/** One request to an application's URL, whose host name need not resolve here. */
export const visit = (url: string, path = '/'): Promise<{ status: number; text: string }> =>
  new Promise((resolve, reject) => {
    const { host, port } = new URL(url)
    const asked = request(
      { host: '127.0.0.1', port, path, headers: { host, connection: 'close' }, timeout: 10_000 },
      (response) => {
        let text = ''
        response.setEncoding('utf8')
        response.on('data', (part: string) => {
          text += part
        })
        response.on('end', () => resolve({ status: response.statusCode ?? 0, text: text.trim() }))
        response.on('error', reject)
      },
    )
    asked.on('timeout', () => asked.destroy(new Error('no answer')))
    asked.on('error', reject)
    asked.end()
  })

/** Visits an application again and again, some visitors at once, until `stop`. */
export function visitors(url: string, count = 4) {
  const answers = new Map<string, number>()
  const failures: string[] = []
  const over = new AbortController()
  const one = async (): Promise<void> => {
    while (!over.signal.aborted) {
      try {
        const { status, text } = await visit(url)
        if (status === 200) answers.set(text, (answers.get(text) ?? 0) + 1)
        else failures.push(`${status} ${text}`)
      } catch (error) {
        failures.push((error as Error).message)
      }
    }
  }
  const all = Array.from({ length: count }, one)
  return {
    answers,
    failures,
    async stop(): Promise<void> {
      over.abort()
      await Promise.all(all)
    },
  }
}
