import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { type Configuration, Provider } from 'oidc-provider'
import { newId } from '../../../lib/ids.ts'
import { plantAll } from '../planted.ts'
import { facts, providerClient } from '../stack.ts'

// A real OAuth server (oidc-provider) at the paths of a Git host, with what it lacks: `slow_down`, `interval`, errors that are
// sent as 200, answers that are lost. It counts what it is asked.

type Paths = 'authorize' | 'token' | 'device' | 'revoke'

export interface OauthServerOptions {
  port: number
  paths: Record<Paths, string>
  /** Sends the errors of its token endpoint as 200. */
  errorsAs200?: boolean
  /** Answers requests that are not OAuth's. False: it does not know the path. */
  api?: (request: IncomingMessage, response: ServerResponse, server: Api) => Promise<boolean>
}

/** What the API beside it asks. */
export interface Api {
  /** The account of a living access token. */
  accountOf(this: void, token: string): Promise<string | null>
}

type Grant = 'authorization_code' | 'refresh_token' | 'urn:ietf:params:oauth:grant-type:device_code'

export async function startOauthServer({ port, paths, errorsAs200 = false, api }: OauthServerOptions) {
  const url = `http://127.0.0.1:${port}`
  /** The requests at its token endpoint, by grant. */
  const asked: Record<string, number> = {}
  /** What the next requests at the token endpoint get instead of an answer. */
  const slowDowns = { left: 0 }
  let loses: (() => void) | null = null
  let holds: { when: 'before' | 'after'; reached: () => void; released: Promise<void> } | null = null
  const life = { access_sec: 3600, device_sec: 600, keepsRefreshToken: false }

  const configuration: Configuration = {
    clients: [
      {
        ...providerClient,
        token_endpoint_auth_method: 'client_secret_post',
        grant_types: ['authorization_code', 'refresh_token', 'urn:ietf:params:oauth:grant-type:device_code'],
        response_types: ['code'],
        redirect_uris: [`${facts().api_url}/connectors/callback`],
      },
    ],
    scopes: ['api', 'read_user', 'repo', 'read:user', 'offline_access'],
    routes: {
      authorization: paths.authorize,
      token: paths.token,
      device_authorization: paths.device,
      revocation: paths.revoke,
      registration: '/register',
    },
    features: {
      deviceFlow: { enabled: true },
      revocation: { enabled: true, allowedPolicy: () => Promise.resolve(true) },
      registration: { enabled: true },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: () => ({ scope: 'api', accessTokenFormat: 'opaque' as const }),
        useGrantedResource: () => true,
      },
    },
    ttl: {
      AccessToken: () => life.access_sec,
      DeviceCode: () => life.device_sec,
      RefreshToken: 86_400,
      Grant: 86_400,
      Interaction: 3600,
      Session: 86_400,
    },
    pkce: { required: () => false },
    issueRefreshToken: () => Promise.resolve(true),
    expiresWithSession: () => Promise.resolve(false),
    rotateRefreshToken: () => !life.keepsRefreshToken,
    findAccount: (_, sub) => ({ accountId: sub, claims: () => ({ sub }) }),
    cookies: { keys: [newId()] },
  }
  const provider = withoutWarnings(() => new Provider(url, configuration))

  provider.use(async (context, next) => {
    const isToken = context.path === paths.token && context.method === 'POST'
    if (isToken && slowDowns.left > 0) {
      slowDowns.left--
      count(asked, 'slow_down')
      context.status = errorsAs200 ? 200 : 400
      context.body = { error: 'slow_down' }
      return
    }
    const held = isToken ? holds : null
    if (held) holds = null
    if (held?.when === 'before') {
      held.reached()
      await held.released
    }
    await next()
    const body = context.body as Record<string, unknown> | undefined
    if (context.path === paths.device && body?.['device_code'] !== undefined) body['interval'] = 1
    if (!isToken) return
    count(asked, grantOf(context))
    if (errorsAs200 && context.status === 400) context.status = 200
    if (body?.['refresh_token'] !== undefined && life.keepsRefreshToken && isRefresh(context))
      delete body['refresh_token']
    plantAll([body?.['access_token'], body?.['refresh_token']].filter((one) => typeof one === 'string'))
    if (held?.when === 'after') {
      held.reached()
      await held.released
    }
    if (loses && isRefresh(context)) {
      context.respond = false // the token is rotated, and the client never learns the new one
      loses()
      loses = null
    }
  })

  const handle = provider.callback()
  const accountOf = async (token: string): Promise<string | null> =>
    (await provider.AccessToken.find(token))?.accountId ?? null
  const server = createServer((request, response) => {
    void (async () => {
      if (await api?.(request, response, { accountOf })) return
      await handle(request, response)
    })()
  })
  server.listen(port, '127.0.0.1')
  await once(server, 'listening')

  /** The device code that a user has entered. */
  async function entered(userCode: string) {
    const code = await provider.DeviceCode.findByUserCode(userCode.replaceAll(/[^a-z0-9]/gi, ''))
    if (!code) throw new Error(`no such user code: ${userCode}`)
    return code
  }

  return {
    url,
    life,
    /** How often the token endpoint was asked in this way. */
    asked: (grant: Grant | 'slow_down') => asked[grant] ?? 0,
    slowDown: (times: number) => void (slowDowns.left = times),
    /** Resolves when it has rotated a refresh token and kept its answer to itself. */
    loseNextRefresh: (): Promise<void> => new Promise((resolve) => (loses = resolve)),
    /** Keeps the next request for a token waiting, before it takes effect or after; `reached`: it is there. */
    holdNext(when: 'before' | 'after'): { reached: Promise<void>; release: () => void } {
      const reached = Promise.withResolvers<void>()
      const released = Promise.withResolvers<void>()
      holds = { when, reached: reached.resolve, released: released.promise }
      return { reached: reached.promise, release: released.resolve }
    },
    accountOf,
    async approve(userCode: string, accountId: string): Promise<void> {
      const code = await entered(userCode)
      const { client_id: clientId } = providerClient
      const grant = new provider.Grant({ accountId, clientId })
      const scope = textOf(code.params?.['scope'])
      grant.addOIDCScope(scope)
      Object.assign(code, { accountId, grantId: await grant.save(), scope, claims: {} })
      await code.save()
    },
    async deny(userCode: string): Promise<void> {
      const code = await entered(userCode)
      Object.assign(code, { error: 'access_denied', errorDescription: 'denied' })
      await code.save()
    },
    async close(): Promise<void> {
      server.close()
      server.closeAllConnections()
      await once(server, 'close')
    },
  }
}

export type OauthServer = Awaited<ReturnType<typeof startOauthServer>>

/** It warns that its storage, keys and pages are for development, which this is. */
function withoutWarnings<T>(make: () => T): T {
  const { warn } = console
  console.warn = () => {}
  try {
    return make()
  } finally {
    console.warn = warn
  }
}

const textOf = (value: unknown): string => (typeof value === 'string' ? value : '')

const count = (counts: Record<string, number>, what: string): void => {
  counts[what] = (counts[what] ?? 0) + 1
}

/** Of a request that the provider has read. */
type Asked = { oidc?: { params?: Record<string, unknown> | undefined } }
const grantOf = (context: object): string => textOf((context as Asked).oidc?.params?.['grant_type'])
const isRefresh = (context: object): boolean => grantOf(context) === 'refresh_token'
