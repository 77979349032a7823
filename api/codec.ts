import proto from '@temporalio/proto'
import express, { type Express, type Request, type RequestHandler, type Response } from 'express'
import type { EncryptingCodec } from '../lib/payload-codec.ts'
import { newId } from '../lib/ids.ts'
import { PermissionDenied, Unauthenticated } from '../lib/problem.ts'
import { logIn } from '../models/identity/login.ts'
import { identityOf, sessionPrefix } from '../models/identity/session-tokens.ts'
import { auditing, userWith } from './audit.ts'
import { originOf } from './fields.ts'
import { makeSharedLimiter } from './limits.ts'

const cookieName = 'keelson_codec'
const { Payload, Payloads } = proto.temporal.api.common.v1

const signInPage = (message: string): string => `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Keelson codec</title></head>
<body><h1>Decode payloads in the Temporal UI</h1><p>${message}</p>
<form method="post" action="/codec/sign-in">
<label>E-mail <input name="email" type="email" required autocomplete="username"></label>
<label>Password <input name="password" type="password" required autocomplete="current-password"></label>
<label>Code of your authenticator app, if you have one <input name="otp" autocomplete="one-time-code"></label>
<button>Sign in</button>
</form></body></html>
`

/**
 * The codec server of the Temporal UI and CLI: decodes payloads for operators only. The CLI sends a token
 * (`--codec-auth`); the UI sends the cookie that the page at /codec sets.
 */
export function serveCodec(app: Express, codec: EncryptingCodec, uiUrl: string): void {
  const limitAttempts = makeSharedLimiter('sign-in', 300, 60) // limits load; the model counts guesses
  app.use('/codec', allowOrigin(new URL(uiUrl).origin))
  app.get('/codec', (_request, response) => void response.type('html').send(signInPage('For operators.')))
  app.post(
    '/codec/sign-in',
    express.urlencoded({ extended: false, limit: '4kb' }),
    async (request, response) => {
      await limitAttempts(request.ip ?? '', response)
      const { email, password, otp } = request.body as Record<string, unknown>
      const credentials = { email: text(email), password: text(password), otp: text(otp) || undefined }
      const origin = originOf(request)
      response.set('X-Request-Id', newId())
      const loggedIn = await auditing(
        { operation: signingIn, address: origin.address, http: { request, response } },
        () => userWith(credentials.email),
        () => logIn(credentials, origin, 'codec'),
      ).catch((error: unknown) => {
        if (!(error instanceof Unauthenticated)) throw error
        response
          .status(401)
          .type('html')
          .send(signInPage(`${error.message}.`))
        return null
      })
      if (!loggedIn) return
      // Browsers take this machine for secure without HTTPS, too.
      response.cookie(cookieName, loggedIn.token, {
        httpOnly: true,
        secure: true,
        sameSite: 'strict',
        path: '/codec',
        expires: loggedIn.expires_at,
      })
      response.type('html').send(signInPage('Signed in: go back to the Temporal UI.'))
    },
  )
  // There is no /codec/encode: a payload belongs to a workflow, which the Temporal UI does not name.
  const readPayloads = express.json({ limit: '4mb' })
  app.post('/codec/decode', requireOperator, readPayloads, (request: Request, response: Response) => {
    const { payloads } = Payloads.fromObject(request.body as object)
    const shown = codec.show(payloads.map((payload) => Payload.create(payload)))
    response.json(Payloads.toObject(Payloads.create({ payloads: shown }), { bytes: String }))
  })
}

const signingIn = { method: 'POST', path: '/codec/sign-in' } as const

const text = (field: unknown): string => (typeof field === 'string' ? field : '')

const allowOrigin =
  (origin: string): RequestHandler =>
  (request, response, next) => {
    response.set({
      'Access-Control-Allow-Origin': origin,
      'Access-Control-Allow-Credentials': 'true',
      'Access-Control-Allow-Headers': 'content-type, authorization, x-namespace',
      Vary: 'Origin',
    })
    if (request.method === 'OPTIONS') response.status(204).end()
    else next()
  }

const requireOperator: RequestHandler = async (request, _response, next) => {
  const [, bearer] = /^Bearer (\S+)$/.exec(request.headers.authorization ?? '') ?? []
  const [, cookie] = new RegExp(`(?:^|; )${cookieName}=([^;]+)`).exec(request.headers.cookie ?? '') ?? []
  const [token, kind] = bearer === undefined ? ([cookie, 'codec'] as const) : ([bearer, 'api'] as const)
  const identity = token?.startsWith(sessionPrefix(kind)) ? await identityOf(token) : null
  if (!identity) throw new Unauthenticated('Sign in at /codec')
  if (!identity.permissions.has('platform:operations')) throw new PermissionDenied('platform:operations')
  next()
}
