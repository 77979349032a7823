import { Secret, TOTP } from 'otpauth'
import { newId } from '../../lib/ids.ts'
import { Authenticator } from '../../models/identity/authenticators.ts'
import { hashPassword, User } from '../../models/identity/users.ts'
import { type Answer, ask, Client, type Json } from './client.ts'
import type { TestTenant } from './tenants.ts'

// Users with a password, who log in as people do.

export const password = 'correct horse battery'
export const login = (body: Json): Promise<Answer> => ask('POST', '/api/v1/auth/login', { body })

/** The code that the authenticator app shows `steps` steps from now. */
export const codeOf = (secret: string, steps = 0): string =>
  new TOTP({ secret: Secret.fromBase32(secret) }).generate({ timestamp: Date.now() + steps * 30_000 })

async function must(status: number, asked: Promise<Answer>): Promise<Json> {
  const answer = await asked
  if (answer.status !== status) throw new Error(`${answer.status} ${JSON.stringify(answer.body)}`)
  return answer.body
}

/** Makes users of a tenant. Each has logged in. */
export function peopleOf(tenant: () => TestTenant) {
  async function make(chosen = password): Promise<{ email: string; id: string; client: Client }> {
    const email = `${newId()}@example.com`
    const password_hash = await hashPassword(chosen)
    const user = await new User({ tenant_id: tenant().id, email, password_hash, roles: ['viewer'] }).save()
    const { token } = await must(200, login({ email, password: chosen }))
    return { email, id: user._id, client: new Client(String(token)) }
  }

  /** Has an authenticator app. */
  async function enrolled() {
    const person = await make()
    const { body } = await person.client.ask('POST', '/api/v1/account/authenticator')
    const secret = String(body['secret'])
    const otp = codeOf(secret)
    const confirming = person.client.ask('POST', '/api/v1/account/authenticator/confirm', { otp })
    const { recovery_codes } = await must(200, confirming)
    // Reset the last used step, so that the present code can be used.
    await Authenticator.updateOne({ tenant_id: tenant().id, _id: person.id }, { $set: { last_step: 0 } })
    const credentials = { email: person.email, password }
    return { ...person, ...credentials, credentials, secret, codes: recovery_codes as string[] }
  }

  /** Has an authenticator app, and a browser in which it is not asked for. */
  async function remembered() {
    const person = await enrolled()
    const otp = codeOf(person.secret)
    const { remember_token } = await must(200, login({ ...person.credentials, otp, remember: true }))
    return { ...person, remember_token: String(remember_token) }
  }

  return { make, enrolled, remembered }
}
