// A certificate authority that issues certificates for domains that answer its challenges (RFC 8555, HTTP-01).

/** An account, with the private key that signs its requests (PEM, secret). */
export interface AuthorityAccount {
  url: string
  key: string
}

export interface HttpChallenge {
  domain: string
  token: string
  /** What http://<domain>/.well-known/acme-challenge/<token> must answer. */
  key_authorization: string
}

/** Throws AuthorityRefused, AccountUnknown, AuthorityUnavailable. */
export interface CertificateAuthority {
  /** Identifies the authority: an account of one is nothing to another. */
  readonly directory: string
  /** Registers the key, or finds the account that has it. Returns its URL. */
  register(key: string): Promise<string>
  /** Places an order, and returns its URL. */
  order(account: AuthorityAccount, domains: string[]): Promise<string>
  /** The challenges of an order that are not proven yet. */
  challenges(account: AuthorityAccount, order: string): Promise<HttpChallenge[]>
  /**
   * Has the authority check what is open, and says whether everything is proven. Repeat it until then. Throws
   * AuthorityRefused, with the domain, if a check failed.
   */
  prove(account: AuthorityAccount, order: string): Promise<boolean>
  /**
   * Sends the signing request, made with this private key, once all is proven, and returns the chain, leaf first. Null
   * while the authority is working: repeat it.
   */
  issue(account: AuthorityAccount, order: string, key: string, domains: string[]): Promise<string | null>
}
