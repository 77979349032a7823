import { nthApiPort } from '../../script/lib/roles.ts'
import { type Answer, ask, type Client, type Json } from './client.ts'
import { facts, layout } from './stack.ts'
import { newId } from '../../lib/ids.ts'

/** The api replicas of the stack. */
export const replicas = (): [string, string] => [
  facts().api_url,
  `http://127.0.0.1:${nthApiPort(layout.apiPort, 1)}`,
]

export interface Machine {
  id: string
  client_id: string
  client_secret: string
  body: Json
}

/** Creates an API client on behalf of this caller. */
export async function makeMachine(by: Client, scopes: string[], more: Json = {}): Promise<Machine> {
  const fields = { name: `machine-${newId().slice(-12)}`, scopes, ...more }
  const { status, body } = await by.ask('POST', '/api/v1/api-clients', fields)
  if (status !== 201) throw new Error(`no API client: ${status} ${JSON.stringify(body)}`)
  return { ...(body as { id: string; client_id: string; client_secret: string }), body }
}

export const basic = (id: string, secret: string): string =>
  `Basic ${Buffer.from(`${id}:${secret}`).toString('base64')}`

/** Sends a token request; returns the token endpoint's answer. */
export const requestToken = (
  { client_id, client_secret }: { client_id: string; client_secret: string },
  form: Record<string, string> = {},
  replica = replicas()[0],
): Promise<Answer> =>
  ask('POST', `${replica}/oauth/token`, {
    headers: {
      authorization: basic(client_id, client_secret),
      'content-type': 'application/x-www-form-urlencoded',
    },
    body: new URLSearchParams({ grant_type: 'client_credentials', ...form }).toString(),
  })

/** A token of this client; the request must succeed. */
export async function tokenOf(machine: Machine, scope?: string): Promise<string> {
  const { status, body } = await requestToken(machine, scope === undefined ? {} : { scope })
  if (status !== 200) throw new Error(`no token: ${status} ${JSON.stringify(body)}`)
  return String(body['access_token'])
}
