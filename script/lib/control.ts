import { once } from 'node:events'
import { rmSync } from 'node:fs'
import { createServer, request, type Server } from 'node:http'
import { join } from 'node:path'
import type { Layout } from './settings.ts'

const verbs = ['start', 'stop', 'restart', 'kill'] as const
export type Verb = (typeof verbs)[number]

/** The requests to a running server, over a socket that only its user can open. */
export interface Controlled {
  roles(): unknown
  act(role: string, verb: Verb): Promise<unknown>
  stopAll(): Promise<void>
}

export const controlSocket = (layout: Layout): string => join(layout.run, 'control.sock')

/**
 * `GET /roles`; `POST /roles/{role}/start|stop|restart|kill`, answered with the role when it is done; `POST /stop`,
 * answered when everything has stopped.
 */
export async function serveControl(layout: Layout, controlled: Controlled): Promise<Server> {
  const server = createServer((incoming, answer) => {
    const reply = (status: number, body: unknown) => answer.writeHead(status).end(`${JSON.stringify(body)}\n`)
    carryOut(controlled, `${incoming.method} ${incoming.url}`).then(
      (result) => reply(200, result),
      (error: Error) => reply(409, { error: error.message }),
    )
  })
  rmSync(controlSocket(layout), { force: true })
  server.listen(controlSocket(layout)) // mode 0600 by the folder's mode, 0700
  await once(server, 'listening')
  return server
}

async function carryOut(controlled: Controlled, asked: string): Promise<unknown> {
  const [, role, verb] = /^POST \/roles\/([^/]+)\/([^/]+)$/.exec(asked) ?? []
  if (asked === 'GET /roles') return controlled.roles()
  if (role && isVerb(verb)) return controlled.act(role, verb)
  if (asked !== 'POST /stop') throw new Error(`no such request: ${asked}`)
  await controlled.stopAll()
  return {}
}

export const isVerb = (word: string | undefined): word is Verb => verbs.some((verb) => verb === word)

/** Sends one request to the running server. Throws if none runs, or with the reason for a refusal. */
export async function askControl(layout: Layout, method: 'GET' | 'POST', path: string): Promise<unknown> {
  const { promise, resolve, reject } = Promise.withResolvers<unknown>()
  const asked = request({ socketPath: controlSocket(layout), method, path }, (answer) => {
    const chunks: Buffer[] = []
    answer.on('data', (chunk: Buffer) => chunks.push(chunk))
    answer.on('error', reject)
    answer.on('end', () => {
      const body = JSON.parse(Buffer.concat(chunks).toString()) as { error?: string }
      if (answer.statusCode === 200) resolve(body)
      else reject(new Error(body.error))
    })
  })
  asked.on('error', (cause) => reject(new Error(`no server runs on ${layout.state}`, { cause })))
  asked.end()
  return promise
}
