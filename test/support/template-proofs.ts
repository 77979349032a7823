import { createHash } from 'node:crypto'
import { expect } from '@jest/globals'
import { eventually } from './eventually.ts'
import type { visit, VisitOptions } from './visits.ts'

/** A service made from a template, as a test uses it. */
export interface Used {
  /** Its first public URL. */
  url: string
  /** One request to that URL. */
  visit: (path: string, options?: VisitOptions) => ReturnType<typeof visit>
  /** The same, for an answer in JSON. */
  ask: <T>(path: string, options?: VisitOptions) => Promise<T>
  /** What the platform generated for its variables. */
  generated: Record<string, string>
  /** Runs a command in one of its containers. Returns its output. */
  run: (container: string, command: string) => Promise<string>
}

/** What shows that the program of a template runs, and that its secrets are those that the platform generated. */
export interface Proof {
  type: string
  /** Its start may take longer than that of other services. */
  within_sec?: number
  /** Fails unless the program answers as only it does. Returns what must hold after a restart. */
  use: (service: Used) => Promise<() => Promise<unknown>>
}

/** Programs that are there, and start, within seconds. */
export const smallProofs: Proof[] = [
  {
    type: 'prometheus',
    async use({ visit, ask }) {
      expect((await visit('/-/ready')).text).toBe('Prometheus Server is Ready.')
      const { data } = await ask<{ data: { version: string } }>('/api/v1/status/buildinfo')
      expect(data.version).toMatch(/^2\.\d+\.\d+/)
      const upAt = (at: string) => ask<Vector>(`/api/v1/query?query=up${at}`)
      const value = await eventually(async () => (await upAt('')).data.result[0])
      expect(value.metric).toEqual({ __name__: 'up', instance: 'localhost:9090', job: 'prometheus' })
      const [at] = value.value
      return async () => {
        const [kept] = (await upAt(`&time=${at}`)).data.result
        expect(kept?.value).toEqual([at, '1'])
      }
    },
  },
  {
    type: 'nats',
    async use({ ask, run, generated }) {
      const seen = await ask<Json>('/varz')
      expect(seen).toMatchObject({ version: '2.10.16', auth_required: true })
      const { SERVICE_USER_NATS: user = '', SERVICE_PASSWORD_NATS: password = '' } = generated
      const sum = createHash('sha256').update(`${user} ${password}`).digest('hex')
      expect(await run('nats', `${ownLogin} printf '%s %s' "$user" "$password" | sha256sum`)).toContain(sum)
      const stream = '{"name":"orders","subjects":["orders"],"storage":"file"}'
      const creates = `PUB $JS.API.STREAM.CREATE.orders answer ${stream.length}\\r\\n${stream}\\r\\n`
      expect(await run('nats', saidTo('wrong', creates))).toContain("-ERR 'Authorization Violation'")
      expect(await run('nats', saidTo('$password', creates))).toContain('stream_create_response')
      const sent = await run('nats', saidTo('$password', 'PUB orders answer 5\\r\\nhello\\r\\n'))
      expect(sent).toMatch(/"stream":"orders", ?"seq":1/)
      return async () => {
        const { account_details } = await ask<Streams>('/jsz?streams=true')
        expect(account_details?.[0]?.stream_detail).toMatchObject([
          { name: 'orders', state: { messages: 1 } },
        ])
      }
    },
  },
  {
    type: 'adminer',
    async use({ visit }) {
      const look = async () => {
        const { status, text } = await visit('/')
        expect(status).toBe(200)
        expect(text).toContain('<title>Login - Adminer</title>')
        expect(text).toContain('<span class="version">4.8.1</span>')
        expect(text).toMatch(/<option value="server"[^>]*>MySQL.*<option value="pgsql">PostgreSQL/)
      }
      await look()
      return look
    },
  },
]

type Json = Record<string, unknown>
interface Vector {
  data: { result: { metric: Record<string, string>; value: [number, string] }[] }
}
interface Streams {
  account_details?: { stream_detail: Json[] }[]
}

const argument = (flag: string) => `$(tr '\\0' '\\n' </proc/1/cmdline | sed -n '/^--${flag}$/{n;p;}')`
/** Has the user and the password with which NATS was started in variables: a command with secrets would be in histories. */
const ownLogin = `user=${argument('user')}; password=${argument('pass')};`

/** A command that logs in at NATS, publishes, and prints what NATS says until it has answered or refused. */
const saidTo = (password: string, publishes: string): string => {
  const connects = 'CONNECT {"user":"%s","pass":"%s","verbose":false}\\r\\nSUB answer 1\\r\\n'
  return [
    `${ownLogin} rm -f /tmp/in /tmp/out; mkfifo /tmp/in; : >/tmp/out`,
    'nc 127.0.0.1 4222 </tmp/in >/tmp/out &',
    `exec 3>/tmp/in; printf '${connects}${publishes}' "$user" "${password}" >&3`,
    "until grep -q '^MSG\\|^-ERR' /tmp/out; do sleep 0.1; done; exec 3>&-; wait; cat /tmp/out",
  ].join('\n')
}
