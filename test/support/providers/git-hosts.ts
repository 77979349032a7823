import type { IncomingMessage, ServerResponse } from 'node:http'
import { providerClient, providerPorts } from '../stack.ts'
import { type Api, startOauthServer } from './oauth-server.ts'

// Stand-ins of GitLab, with an MCP server beside it, and of GitHub: real OAuth servers, with the little of an API that
// connectors ask.

const bearerOf = ({ headers }: IncomingMessage): string =>
  (headers.authorization ?? '').replace(/^(Bearer|token) /i, '')

function json(response: ServerResponse, status: number, body: object): true {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body))
  return true
}

/** `ada` has the id `id-of-ada`. */
const accountWith = (login: string, field: 'login' | 'username') => ({ id: `id-of-${login}`, [field]: login })

/** A token that a user made by hand. */
export const personalToken = (login: string): string => `personal-token-of-${login}`
const ownerOfPersonal = (token: string): string | null => /^personal-token-of-(\w+)$/.exec(token)?.[1] ?? null

export const startGitlab = () => {
  const url = `http://127.0.0.1:${providerPorts.gitlab}`
  return startOauthServer({
    port: providerPorts.gitlab,
    paths: {
      authorize: '/oauth/authorize',
      token: '/oauth/token',
      device: '/oauth/authorize_device',
      revoke: '/oauth/revoke',
    },
    api: async (request, response, { accountOf }) => {
      if (request.url === '/.well-known/oauth-protected-resource/mcp')
        return json(response, 200, {
          resource: `${url}/mcp`,
          authorization_servers: [url],
          scopes_supported: ['api'],
        })
      // Leads its clients to an address that they must not reach.
      if (request.url === '/.well-known/oauth-protected-resource/hostile')
        return json(response, 200, {
          resource: `${url}/hostile`,
          authorization_servers: ['http://169.254.169.254'],
        })
      if (request.url !== '/api/v4/user') return false
      const key = request.headers['private-token']
      const login = typeof key === 'string' ? ownerOfPersonal(key) : await accountOf(bearerOf(request))
      return login === null
        ? json(response, 401, { message: '401' })
        : json(response, 200, accountWith(login, 'username'))
    },
  })
}

export const startGithub = async () => {
  const revoked: string[] = []
  const github = await startOauthServer({
    port: providerPorts.github,
    paths: {
      authorize: '/login/oauth/authorize',
      token: '/login/oauth/access_token',
      device: '/login/device/code',
      revoke: '/none',
    },
    errorsAs200: true,
    api: (request, response, api) => githubApi(request, response, api, revoked),
  })
  return { ...github, revoked }
}

async function githubApi(
  request: IncomingMessage,
  response: ServerResponse,
  { accountOf }: Api,
  revoked: string[],
): Promise<boolean> {
  if (request.url === '/user') {
    const token = bearerOf(request)
    const login = ownerOfPersonal(token) ?? (await accountOf(token))
    if (login === null) return json(response, 401, { message: 'Bad credentials' })
    return json(response, 200, accountWith(login, 'login'))
  }
  const { client_id, client_secret } = providerClient
  if (request.method === 'DELETE' && request.url === `/applications/${client_id}/token`) {
    const basic = Buffer.from(`${client_id}:${client_secret}`).toString('base64')
    if (request.headers.authorization !== `Basic ${basic}`) return json(response, 401, {})
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk as Buffer)
    revoked.push((JSON.parse(Buffer.concat(chunks).toString()) as { access_token: string }).access_token)
    response.writeHead(204).end()
    return true
  }
  return false
}
