import { Problem } from '../../lib/problem.ts'
import { transaction } from '../database.ts'
import { checkCredential } from './checks.ts'
import { type ConnectorDocument, type OauthServer, turnOf } from './connectors.ts'
import { keepCredential } from './keep.ts'
import {
  type ConnectorLoginDocument,
  destinationOf,
  endLogin,
  keepGrant,
  loginUsed,
  openLogin,
} from './logins.ts'
import type { Grant } from './protocol.ts'

/**
 * Makes the connector of a login, or replaces one, and ends the login with it. If that is refused, the grant stays with the
 * login: the same call ends it once the account is confirmed, the name free or the limit raised. Throws CredentialRefused, AccountDiffers, `login_used`, and as
 * `keepCredential`.
 */
export async function finishLogin(
  login: ConnectorLoginDocument,
  grant: Grant,
  confirmAccountChange: boolean,
): Promise<ConnectorDocument> {
  const { provider, kind, base_url, server } = login
  const place = { provider, kind, base_url, key_header: null, api_version: null }
  const { client_secret } = await openLogin(login)
  const secret = { token: grant.token, refresh_token: grant.refresh_token, client_secret }
  const checked = await checkCredential(place, secret)
  try {
    return await transaction(async () => {
      if (!(await endLogin(login, 'done'))) throw loginUsed()
      return keepCredential(destinationOf(login, confirmAccountChange), {
        ...place,
        ...checked,
        secret,
        scopes: grant.scopes ?? login.scopes,
        oauth: server && clientAt(server),
        expires_at: grant.expires_at,
        refresh_expires_at: grant.refresh_expires_at,
      })
    }, turnOf(login.tenant_id))
  } catch (error) {
    if (error instanceof Problem) await keepGrant(login, grant)
    throw error
  }
}

const clientAt = ({
  issuer,
  token_endpoint,
  revocation_endpoint,
  client_id,
  client_auth,
}: OauthServer): OauthServer => ({ issuer, token_endpoint, revocation_endpoint, client_id, client_auth })
