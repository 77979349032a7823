import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { eventually } from '../eventually.ts'
import { layout } from '../stack.ts'

// Gitea itself: a Git host with its own logins.

const tools = join(process.env['KEELSON_TOOLS'] ?? join(layout.state, 'tools'), 'gitea')
const program = join(tools, 'bin/gitea')
/** Whether script/bootstrap --tests built it on this machine, which it does for the long form. */
export const hasGitea = existsSync(program)
const run = promisify(execFile)

const user = { login: 'ada', password: 'a password of the tests' }

/** A server at this port of 127.0.0.1, with one user. Each refresh token is good once. */
export async function openGitea(port: number) {
  const folder = await mkdtemp(join(tmpdir(), 'gitea-'))
  const url = `http://127.0.0.1:${port}`
  const config = join(folder, 'app.ini')
  await writeFile(config, configuration(folder, port, url))
  const options = {
    cwd: folder,
    env: { ...process.env, GITEA_I_AM_BEING_UNSAFE_RUNNING_AS_ROOT: 'true', HOME: folder },
  }
  const admin = async (...args: string[]) => {
    const { stdout } = await run(program, ['--config', config, 'admin', 'user', ...args], options)
    return stdout.trim().split('\n').at(-1) ?? ''
  }
  const server: ChildProcess = spawn(program, ['--config', config, 'web'], { ...options, stdio: 'ignore' })
  await eventually(() =>
    fetch(`${url}/api/healthz`).then(
      ({ ok }) => ok,
      () => false,
    ),
  )
  const of = ['--username', user.login]
  await admin(
    'create',
    ...of,
    '--password',
    user.password,
    '--email',
    'ada@example.com',
    '--must-change-password=false',
  )

  return {
    url,
    /** A token as a user makes it by hand. */
    makeToken: (name: string) =>
      admin('generate-access-token', ...of, '--token-name', name, '--scopes', 'read:user', '--raw'),
    /** Registers a client, as an operator of the platform does. */
    async makeClient(redirect_uri: string): Promise<{ client_id: string; client_secret: string }> {
      const answer = await fetch(`${url}/api/v1/user/applications/oauth2`, {
        method: 'POST',
        headers: { authorization: basic, 'content-type': 'application/json' },
        body: JSON.stringify({ name: 'keelson', redirect_uris: [redirect_uri], confidential_client: true }),
      })
      return (await answer.json()) as { client_id: string; client_secret: string }
    },
    async close(): Promise<void> {
      server.kill('SIGKILL')
      if (server.exitCode === null && server.signalCode === null) await once(server, 'exit')
      await rm(folder, { recursive: true, force: true })
    },
  }
}
export type Gitea = Awaited<ReturnType<typeof openGitea>>

const basic = `Basic ${Buffer.from(`${user.login}:${user.password}`).toString('base64')}`

const configuration = (folder: string, port: number, url: string): string => `
RUN_USER = root
WORK_PATH = ${folder}
[server]
HTTP_ADDR = 127.0.0.1
HTTP_PORT = ${port}
ROOT_URL = ${url}/
DISABLE_SSH = true
OFFLINE_MODE = true
STATIC_ROOT_PATH = ${join(tools, 'static')}
[database]
DB_TYPE = sqlite3
PATH = ${join(folder, 'gitea.db')}
[security]
INSTALL_LOCK = true
SECRET_KEY = only-for-tests
[service]
DISABLE_REGISTRATION = true
[oauth2]
ENABLED = true
INVALIDATE_REFRESH_TOKENS = true
[actions]
ENABLED = false
[cron]
ENABLED = false
[log]
LEVEL = Error
`

/** Logs its user in, allows the client, and returns where Gitea sends the browser: the redirect URL with a code. */
export async function logInAtGitea(authorizeUrl: string): Promise<string> {
  const { origin } = new URL(authorizeUrl)
  const cookies = new Map<string, string>()
  const ask = async (url: string, form?: URLSearchParams): Promise<Response> => {
    const answer = await fetch(new URL(url, origin), {
      method: form ? 'POST' : 'GET',
      redirect: 'manual',
      headers: { origin, cookie: [...cookies].map(([name, value]) => `${name}=${value}`).join('; ') },
      ...(form ? { body: form } : {}),
    })
    for (const cookie of answer.headers.getSetCookie()) {
      const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(cookie) ?? []
      cookies.set(name, value)
    }
    return answer
  }
  await ask('/user/login', new URLSearchParams({ user_name: user.login, password: user.password }))
  const page = await ask(authorizeUrl)
  // The user has allowed the client before.
  const known = page.headers.get('location')
  if (known !== null) return known
  const inputs = [...(await page.text()).matchAll(/<input type="hidden" name="(\w+)" value="([^"]*)"/g)]
  const form = new URLSearchParams(
    inputs.map(([, name = '', value = '']): [string, string] => [name, unescaped(value)]),
  )
  form.set('granted', 'true')
  const end = await ask('/login/oauth/grant', form)
  const location = end.headers.get('location')
  if (location === null) throw new Error(`${end.status}: ${(await end.text()).slice(0, 300)}`)
  return location
}

const unescaped = (html: string): string => html.replaceAll('&amp;', '&').replaceAll('&#43;', '+')
