import { Problem } from '../../lib/problem.ts'
import type { ProviderName } from './catalogue.ts'

// Why a connector cannot be had, used or changed. None says what a provider answered: that may hold a secret.

/** The user of the connector must log in again, or import another key. */
export class ReauthRequired extends Problem {
  constructor(connector_id: string, reason: string | null) {
    super(409, 'reauth_required', 'The connector must be connected again', reason ?? undefined, {
      extensions: { connector_id },
    })
  }
}

/** The provider refuses the key, or the platform has revoked the credential. */
export class ConnectorUnusable extends Problem {
  constructor(connector_id: string, status: string, reason: string | null) {
    super(409, 'connector_unusable', 'The connector cannot be used', reason ?? `It is ${status}`, {
      extensions: { connector_id, state: status },
    })
  }
}

/** The tenant has no connector of the kind that an operation needs. */
export class ConnectorRequired extends Problem {
  constructor(providers: readonly ProviderName[]) {
    super(
      409,
      'connector_required',
      'A connector is required',
      `Connect one of ${providers.join(', ')} first`,
      { extensions: { providers } },
    )
  }
}

export class CredentialRefused extends Problem {
  constructor(title: string) {
    super(
      422,
      'credential_refused',
      'The provider refuses the credential',
      `${title} refuses the key or token`,
    )
  }
}

/** No usable answer of a provider. `why` is in our words. */
export class ProviderUnavailable extends Problem {
  constructor(title: string, why: string) {
    super(503, 'provider_unavailable', 'The provider does not answer', `${title}: ${why}`, {
      headers: { 'Retry-After': '10' },
    })
  }
}

/** The operator has not made the platform a client of this provider, or it has no such login. */
export class LoginNotOffered extends Problem {
  constructor(title: string, kind: 'oauth' | 'device') {
    super(
      409,
      'login_not_offered',
      'This login is not offered',
      kind === 'device'
        ? `The platform offers no device login for ${title}`
        : `The platform has no OAuth client at ${title}`,
    )
  }
}

/** The secret is of another account than the one that it replaces. */
export class AccountDiffers extends Problem {
  constructor(present: string, given: string) {
    super(
      409,
      'account_change_unconfirmed',
      'The credential belongs to another account',
      `It belongs to ${given}, not to ${present}: confirm the change with confirm_account_change`,
      { extensions: { account: present, new_account: given } },
    )
  }
}
