import { expect } from '@jest/globals'
import { createHash, createHmac } from 'node:crypto'
import { eventually } from './eventually.ts'
import type { Proof, Used } from './template-proofs.ts'

// What shows that a template's program runs, of programs that take minutes to build or to start: for the long form.

type Json = Record<string, unknown>

const asJson = { 'content-type': 'application/json' }
const post = (body: Json, headers: Record<string, string> = {}) => ({
  method: 'POST',
  headers: { ...asJson, ...headers },
  body: JSON.stringify(body),
})
const basic = (user = '', password = '') => ({
  authorization: `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`,
})
const bearer = (token: unknown) => ({ authorization: `Bearer ${String(token)}` })

export const programProofs: Proof[] = [
  {
    type: 'gitea',
    async use({ visit, ask, run }) {
      expect(await ask('/api/v1/version')).toEqual({ version: '1.26.0' })
      expect((await visit('/user/login')).text).toContain('name="user_name"')
      const person = '--admin --username ada --password lovelace-1815 --email ada@example.com'
      const create = `gitea admin user create ${person} --must-change-password=false`
      expect(await run('gitea', `USER=git su-exec git ${create}`)).toContain(
        "New user 'ada' has been successfully created",
      )
      const headers = basic('ada', 'lovelace-1815')
      const made = await visit('/api/v1/user/repos', post({ name: 'engine', auto_init: true }, headers))
      expect(made.status).toBe(201)
      return async () => {
        const { text } = await visit('/api/v1/repos/ada/engine/raw/README.md', { headers })
        expect(text).toBe('# engine')
      }
    },
  },
  {
    type: 'miniflux',
    async use({ visit, ask, generated }) {
      expect((await visit('/')).text).toContain('Miniflux')
      const headers = basic(generated['SERVICE_USER_ADMIN'], generated['SERVICE_PASSWORD_ADMIN'])
      expect(await ask('/v1/me', { headers })).toMatchObject({
        username: generated['SERVICE_USER_ADMIN'],
        is_admin: true,
      })
      expect((await visit('/v1/me', { headers: basic('admin', 'wrong') })).status).toBe(401)
      expect((await visit('/v1/categories', post({ title: 'kept' }, headers))).status).toBe(201)
      return async () => {
        const titles = (await ask<{ title: string }[]>('/v1/categories', { headers })).map(
          ({ title }) => title,
        )
        expect(titles).toContain('kept')
      }
    },
  },
  {
    type: 'pocketbase',
    async use({ visit, ask }) {
      expect(await ask('/api/health')).toMatchObject({ code: 200, message: 'API is healthy.' })
      const [email, password] = ['ada@example.com', 'lovelace-1815']
      const first = await visit('/api/admins', post({ email, password, passwordConfirm: password }))
      expect(first.status).toBe(200)
      expect((await visit('/_/')).text).toContain('<title>PocketBase</title>')
      return async () => {
        const said = await ask<Json>('/api/admins/auth-with-password', post({ identity: email, password }))
        expect(said).toMatchObject({ token: expect.any(String), admin: { email } })
      }
    },
  },
  {
    type: 'memos',
    async use({ visit, ask }) {
      expect(await ask('/api/v1/workspace/profile')).toMatchObject({ version: '0.22.1', mode: 'prod' })
      const person = '?username=ada&password=lovelace-1815'
      const up = await visit(`/api/v1/auth/signup${person}`, { method: 'POST' })
      expect(up.status).toBe(200)
      return async () => {
        const again = await visit(`/api/v1/auth/signin${person}`, { method: 'POST' })
        expect([again.status, JSON.parse(again.text)]).toMatchObject([200, { username: 'ada', role: 'HOST' }])
      }
    },
  },
  {
    type: 'versitygw',
    async use(service) {
      expect(await send(service, 'PUT', '/kept', '', 'wrong')).toMatchObject({ status: 403 })
      expect(await send(service, 'PUT', '/kept')).toMatchObject({ status: 200 })
      expect(await send(service, 'PUT', '/kept/file', 'in the object')).toMatchObject({ status: 200 })
      return async () => {
        expect(await send(service, 'GET', '/kept/file')).toMatchObject({ status: 200, text: 'in the object' })
      }
    },
  },
  {
    type: 'node-red',
    async use({ visit, ask, generated }) {
      expect((await visit('/')).text).toContain('<title>Node-RED</title>')
      expect((await visit('/flows')).status).toBe(401)
      const login = (password = '') =>
        visit(
          '/auth/token',
          post({
            client_id: 'node-red-editor',
            grant_type: 'password',
            scope: '*',
            username: generated['SERVICE_USER_ADMIN'],
            password,
          }),
        )
      expect((await login('wrong')).status).toBe(403)
      const { access_token } = JSON.parse((await login(generated['SERVICE_PASSWORD_ADMIN'])).text) as Json
      expect(await ask('/settings', { headers: bearer(access_token) })).toMatchObject({ version: '4.1.15' })
      const flow = [
        { id: 't', type: 'tab', label: 'kept' },
        { id: 'in', type: 'http in', z: 't', url: '/hello', method: 'get', wires: [['f']] },
        {
          id: 'f',
          type: 'function',
          z: 't',
          func: 'msg.payload = `${6 * 7}`; return msg',
          outputs: 1,
          wires: [['out']],
        },
        { id: 'out', type: 'http response', z: 't', wires: [] },
      ]
      const body = JSON.stringify(flow)
      const headers = { ...asJson, ...bearer(access_token) }
      expect((await visit('/flows', { method: 'POST', headers, body })).status).toBe(204)
      const answers = () => eventually(async () => (await visit('/hello')).text === '42')
      await answers()
      return answers
    },
  },
  {
    type: 'actual',
    async use({ visit, ask }) {
      expect(await ask('/info')).toMatchObject({
        build: { name: '@actual-app/sync-server', version: '26.9.0' },
      })
      expect((await visit('/')).text).toContain('<title>Actual</title>')
      const password = 'lovelace-1815'
      expect((await visit('/account/bootstrap', post({ password }))).status).toBe(200)
      return async () => {
        const again = await ask('/account/login', post({ loginMethod: 'password', password }))
        expect(again).toMatchObject({ status: 'ok', data: { token: expect.any(String) } })
      }
    },
  },
  {
    type: 'marimo',
    async use({ visit, ask, run, generated }) {
      expect((await visit('/api/status')).status).toBe(401)
      const headers = bearer(generated['SERVICE_PASSWORD_MARIMO'])
      expect(await ask('/api/status', { headers })).toMatchObject({ mode: 'edit', version: '0.25.2' })
      const code = [
        'import marimo',
        'app = marimo.App()',
        '@app.cell',
        'def _():',
        '    print(f"sum {sum([19, 23])}")',
      ]
      const write = `printf '${code.join('\\n')}\\n' >kept.py`
      const computes = 'marimo export html kept.py --no-sandbox -o /tmp/kept.html >/tmp/said 2>&1'
      const output = await run('marimo', `cd /notebooks; ${write}; ${computes}; grep -o 'sum 42' /tmp/said`)
      expect(output).toBe('sum 42')
      return async () => {
        expect((await visit('/?file=kept.py', { headers })).text).toContain('kept.py</marimo-filename>')
      }
    },
  },
  {
    type: 'weaviate',
    async use({ visit, ask, generated }) {
      const headers = bearer(generated['SERVICE_PASSWORD_64_WEAVIATE'])
      expect((await visit('/v1/meta')).status).toBe(401)
      expect(await ask('/v1/meta', { headers })).toMatchObject({ version: '1.29.0' })
      const made = await visit('/v1/schema', post({ class: 'Page', vectorizer: 'none' }, headers))
      expect(made.status).toBe(200)
      for (const words of ['boats have a keel', 'cars have wheels'])
        expect(
          (await visit('/v1/objects', post({ class: 'Page', properties: { words } }, headers))).status,
        ).toBe(200)
      const query = '{ Get { Page(bm25: { query: "keel" }) { words } } }'
      const finds = async () =>
        expect(await ask('/v1/graphql', post({ query }, headers))).toEqual({
          data: { Get: { Page: [{ words: 'boats have a keel' }] } },
        })
      await finds()
      return finds
    },
  },
  {
    type: 'keycloak',
    within_sec: 900,
    async use({ visit, ask, url, generated }) {
      const issuer = `${url}/realms/master`
      expect(await ask('/realms/master/.well-known/openid-configuration')).toMatchObject({ issuer })
      const token = async (password = '') =>
        visit('/realms/master/protocol/openid-connect/token', {
          method: 'POST',
          headers: { 'content-type': 'application/x-www-form-urlencoded' },
          body: new URLSearchParams({
            grant_type: 'password',
            client_id: 'admin-cli',
            username: generated['SERVICE_USER_ADMIN'] ?? '',
            password,
          }).toString(),
        })
      expect((await token('wrong')).status).toBe(401)
      const logIn = async () => {
        const { access_token } = JSON.parse((await token(generated['SERVICE_PASSWORD_ADMIN'])).text) as Json
        return bearer(access_token)
      }
      expect(
        (await visit('/admin/realms', post({ realm: 'kept', enabled: true }, await logIn()))).status,
      ).toBe(201)
      return async () => {
        const realms = await ask<{ realm: string }[]>('/admin/realms', { headers: await logIn() })
        expect(realms.map(({ realm }) => realm)).toEqual(expect.arrayContaining(['master', 'kept']))
      }
    },
  },
]

const hash = (content: string): string => createHash('sha256').update(content).digest('hex')
const mac = (key: string | Buffer, content: string): Buffer =>
  createHmac('sha256', key).update(content).digest()

/** A request to S3, signed with the generated keys (Signature Version 4), or with another secret. */
function send({ visit, url, generated }: Used, method: string, path: string, body = '', secret?: string) {
  const now = new Date().toISOString().replace(/[-:]|\.\d+/g, '')
  const scope = `${now.slice(0, 8)}/us-east-1/s3/aws4_request`
  const sum = hash(body)
  const host = new URL(url).host
  const signed = 'host;x-amz-content-sha256;x-amz-date'
  const request = `${method}\n${path}\n\nhost:${host}\nx-amz-content-sha256:${sum}\nx-amz-date:${now}\n\n${signed}\n${sum}`
  const key = scope
    .split('/')
    .reduce<string | Buffer>(
      (of, part) => mac(of, part),
      `AWS4${secret ?? generated['SERVICE_PASSWORD_ADMIN']}`,
    )
  const signature = mac(key, `AWS4-HMAC-SHA256\n${now}\n${scope}\n${hash(request)}`).toString('hex')
  const credential = `${generated['SERVICE_USER_ADMIN']}/${scope}`
  return visit(path, {
    method,
    body,
    headers: {
      'x-amz-date': now,
      'x-amz-content-sha256': sum,
      'content-length': String(Buffer.byteLength(body)),
      authorization: `AWS4-HMAC-SHA256 Credential=${credential}, SignedHeaders=${signed}, Signature=${signature}`,
    },
  })
}
