import { setTimeout as delay } from 'node:timers/promises'
import { v7 as newAttempt } from 'uuid'
import type { BuildLogPart } from '../../lib/deploy-protocol.ts'

const sendsEveryMs = 500
const linesPerPart = 200
const longestLine = 2000
/** A build that writes more is heard no longer. */
const mostLines = 50_000
const triesAtMost = 60
const pauseMs = 1000
/** A shorter secret would hide parts of words. */
const shortestSecret = 4

/** Sends the lines of a build to the platform, in parts, without its secrets. */
export function makeBuildLog(secrets: string[], send: (part: BuildLogPart) => Promise<void>) {
  const attempt = newAttempt()
  const redacted = redactor(secrets)
  let waiting: BuildLogPart['lines'] = []
  let part = 0
  let total = 0
  const ending = new AbortController()
  let sending: Promise<void> | null = null

  /** Nothing is lost while the API starts again. */
  async function sendSafely(one: BuildLogPart): Promise<void> {
    for (let tries = 1; ; tries++) {
      try {
        await send(one)
        return
      } catch (error) {
        if (tries === triesAtMost || isPermanent(error)) return
        await delay(pauseMs)
      }
    }
  }

  async function sendAll(): Promise<void> {
    await delay(sendsEveryMs, undefined, { signal: ending.signal }).catch(() => {}) // the last lines do not wait
    while (waiting.length) {
      const lines = waiting.splice(0, linesPerPart)
      total += lines.length
      await sendSafely({ attempt, part: part++, total, lines })
    }
    sending = null
  }

  let said = 0
  return {
    redacted,
    say(this: void, line: string): void {
      if (++said > mostLines) return
      const text = said === mostLines ? 'further lines are left out' : redacted(line).slice(0, longestLine)
      waiting.push({ time: new Date().toISOString(), line: text })
      sending ??= sendAll()
    },
    async end(): Promise<void> {
      ending.abort()
      await sending
      if (waiting.length) await sendAll()
    },
  }
}

/** The platform refuses: the build was deleted. */
const isPermanent = (error: unknown): boolean =>
  typeof error === 'object' && error !== null && Reflect.get(error, 'permanent') === true

/** Replaces secrets, also each line of those that have several, and their usual encodings. */
export function redactor(secrets: string[]): (text: string) => string {
  const parts = secrets
    .flatMap((secret) => [secret, ...secret.split('\n').map((line) => line.trim())])
    .flatMap((plain) => [plain, Buffer.from(plain).toString('base64'), encodeURIComponent(plain)])
    .filter(({ length }) => length >= shortestSecret)
  const longestFirst = [...new Set(parts)].toSorted((a, b) => b.length - a.length)
  return (text) => longestFirst.reduce((rest, secret) => rest.replaceAll(secret, '***'), text)
}
