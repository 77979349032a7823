import { request } from 'node:http'
import { setTimeout as delay } from 'node:timers/promises'
import { atEndOfFile } from './end-of-file.ts'

interface Visited {
  status: number
  text: string
  location: string | null
  cookies: string[]
}
export interface VisitOptions {
  method?: string
  headers?: Record<string, string>
  body?: string
}

/** One request to an application's URL, whose host name need not resolve here. */
export const visit = (
  url: string,
  path = '/',
  { method = 'GET', headers: more = {}, body }: VisitOptions = {},
): Promise<Visited> =>
  new Promise((resolve, reject) => {
    const { host, port } = new URL(url)
    const headers = { host, connection: 'close', ...more }
    const asked = request({ host: '127.0.0.1', port, path, method, headers, timeout: 10_000 }, (response) => {
      let text = ''
      response.setEncoding('utf8')
      response.on('data', (part: string) => {
        text += part
      })
      response.on('end', () => {
        const { statusCode = 0, headers: given } = response
        const cookies = given['set-cookie'] ?? []
        resolve({ status: statusCode, text: text.trim(), location: given.location ?? null, cookies })
      })
      response.on('error', reject)
    })
    asked.on('timeout', () => asked.destroy(new Error('no answer')))
    asked.on('error', reject)
    asked.end(body)
  })

const sec = (ms: number): string => (ms / 1000).toFixed(1)

/**
 * Visits an application until `stop`: some visitors at once, again and again; or so many times a second, whether or not the
 * visits before are over.
 */
export function visitors(url: string, how: number | { perSecond: number } = 4, path = '/') {
  const answers = new Map<string, number>()
  const faults = new Map<string, { count: number; first: number; last: number }>()
  const begun = performance.now()
  const over = new AbortController()
  const fail = (what: string): void => {
    const at = performance.now() - begun
    const { count: before, first } = faults.get(what) ?? { count: 0, first: at }
    faults.set(what, { count: before + 1, first, last: at })
  }
  const once = async (): Promise<void> => {
    try {
      const { status, text } = await visit(url, path)
      if (status === 200) answers.set(text, (answers.get(text) ?? 0) + 1)
      else fail(`${status} ${text}`)
    } catch (error) {
      fail((error as Error).message)
    }
  }
  const again = async (): Promise<void> => {
    while (!over.signal.aborted) await once()
  }
  const steadily = async (gapMs: number): Promise<void> => {
    const visits = new Set<Promise<void>>()
    let begunCount = 0
    while (!over.signal.aborted) {
      for (; begunCount * gapMs < performance.now() - begun; begunCount++) {
        const visiting = once().finally(() => visits.delete(visiting))
        visits.add(visiting)
      }
      await delay(gapMs)
    }
    await Promise.all(visits)
  }
  const all = typeof how === 'number' ? Array.from({ length: how }, again) : [steadily(1000 / how.perSecond)]
  const stop = async (): Promise<void> => {
    over.abort()
    await Promise.all(all)
  }
  atEndOfFile(stop)
  return {
    answers,
    /** What failed, a line for each kind: how often, and when, since the first visit. */
    get failures(): string[] {
      return [...faults].map(
        ([what, { count: times, first, last }]) => `${times} times, ${sec(first)} to ${sec(last)} s: ${what}`,
      )
    },
    /** How many visits failed. */
    get failed(): number {
      return [...faults.values()].reduce((sum, { count }) => sum + count, 0)
    },
    stop,
  }
}
