// The providers of connectors, as data. What a tenant may do with one follows from its row.

/** How a connector came by its credential: `none` is a server that asks for none. */
export const connectorKinds = ['api_key', 'oauth', 'device', 'none'] as const
export type ConnectorKind = (typeof connectorKinds)[number]

/** Whose credential it is, as the provider says. */
export interface Account {
  id: string
  login: string
}

/** Where a Git host has its logins, below its site. Any other OAuth server is discovered. */
export interface LoginPaths {
  authorize: string
  token: string
  device?: string
  /** A token is revoked as RFC 7009 says, or as GitHub does. */
  revoke?: { path: string; as: 'rfc7009' | 'github' }
}

export interface Provider {
  title: string
  serves: 'git' | 'models' | 'tools'
  kinds: readonly ConnectorKind[]
  /** The usual place of its API. Null: there is none, and an operator or the tenant gives it. */
  base_url: string | null
  /** Whether a tenant may give another base URL. */
  own_base_url: boolean
  /** How a key is sent: `Authorization: Bearer`, or bare in a header of its own. A token of OAuth is always a bearer. */
  key: { header: string; scheme: 'Bearer' | 'token' | null }
  /** Where a vendor with an API of its own also has OpenAI's, below the base URL. There the key is a bearer token. */
  openai_path?: string
  /** What goes with each request beside the credential. */
  headers: Readonly<Record<string, string>>
  /** Below the base URL: answers 2xx to a credential that works. Null: a token is checked by its use alone. */
  health: string | null
  /** Whether `/models/{name}` below the base URL answers 404 exactly to what is no model there, aliases included. */
  tells_models?: boolean
  /** How `health` answers a credential that does not work. Any other answer says nothing about it. */
  refuses: readonly number[]
  /** Where the answer to `health` names the account. */
  account?: { id: string; login: string }
  /** The logins of a Git host, with the scopes that are asked for. */
  logins?: LoginPaths & { scopes: readonly string[] }
  /** The errors of its token endpoint that say that a refresh token is dead. */
  dead: readonly string[]
}

const bearer = { header: 'authorization', scheme: 'Bearer' } as const
const usual = {
  own_base_url: false,
  key: bearer,
  headers: {},
  refuses: [401],
  dead: ['invalid_grant'],
} as const
const git = { ...usual, serves: 'git' } as const
/** A vendor of models: only by key. Vendors forbid that others offer the logins of their consumers. */
const models = { ...usual, serves: 'models', kinds: ['api_key'], health: '/models' } as const

export const catalogue = {
  github: {
    ...git,
    title: 'GitHub',
    kinds: ['device', 'oauth', 'api_key'],
    base_url: 'https://api.github.com',
    // GitHub refuses requests without a name.
    headers: { accept: 'application/vnd.github+json', 'user-agent': 'Keelson' },
    health: '/user',
    account: { id: 'id', login: 'login' },
    logins: {
      authorize: '/login/oauth/authorize',
      token: '/login/oauth/access_token',
      device: '/login/device/code',
      revoke: { path: '/applications/{client_id}/token', as: 'github' },
      scopes: ['repo', 'read:user'],
    },
    dead: ['invalid_grant', 'bad_refresh_token'],
  },
  gitlab: {
    ...git,
    title: 'GitLab',
    kinds: ['device', 'oauth', 'api_key'],
    base_url: 'https://gitlab.com',
    own_base_url: true,
    key: { header: 'private-token', scheme: null },
    health: '/api/v4/user',
    account: { id: 'id', login: 'username' },
    logins: {
      authorize: '/oauth/authorize',
      token: '/oauth/token',
      device: '/oauth/authorize_device',
      revoke: { path: '/oauth/revoke', as: 'rfc7009' },
      scopes: ['api', 'read_user'],
    },
  },
  gitea: {
    ...git,
    title: 'Gitea',
    kinds: ['oauth', 'api_key'],
    base_url: null,
    own_base_url: true,
    key: { header: 'authorization', scheme: 'token' },
    health: '/api/v1/user',
    account: { id: 'id', login: 'login' },
    logins: {
      authorize: '/login/oauth/authorize',
      token: '/login/oauth/access_token',
      scopes: ['read:user', 'write:repository'],
    },
    // Its answer to a refresh token that was used before.
    dead: ['invalid_grant', 'unauthorized_client'],
  },
  anthropic: {
    ...models,
    title: 'Anthropic',
    base_url: 'https://api.anthropic.com/v1',
    key: { header: 'x-api-key', scheme: null },
    headers: { 'anthropic-version': '2023-06-01' },
    tells_models: true,
  },
  openai: { ...models, title: 'OpenAI', base_url: 'https://api.openai.com/v1', tells_models: true },
  google: {
    ...models,
    title: 'Google Gemini',
    base_url: 'https://generativelanguage.googleapis.com/v1beta',
    // Never as `?key=`: URLs are logged.
    key: { header: 'x-goog-api-key', scheme: null },
    openai_path: '/openai',
    refuses: [400, 401, 403],
  },
  mistral: { ...models, title: 'Mistral', base_url: 'https://api.mistral.ai/v1' },
  groq: { ...models, title: 'Groq', base_url: 'https://api.groq.com/openai/v1' },
  xai: { ...models, title: 'xAI', base_url: 'https://api.x.ai/v1', refuses: [400, 401], tells_models: true },
  deepseek: { ...models, title: 'DeepSeek', base_url: 'https://api.deepseek.com/v1' },
  openrouter: {
    ...models,
    title: 'OpenRouter',
    base_url: 'https://openrouter.ai/api/v1',
    health: '/key', // its list of models is public
  },
  azure_openai: {
    ...models,
    title: 'Azure OpenAI',
    base_url: null,
    own_base_url: true,
    key: { header: 'api-key', scheme: null },
    health: '/openai/models?api-version={api_version}',
  },
  openai_compatible: {
    ...models,
    title: 'OpenAI-compatible API',
    kinds: ['api_key', 'none'],
    base_url: null,
    own_base_url: true,
  },
  mcp: {
    ...usual,
    title: 'MCP server',
    serves: 'tools',
    kinds: ['oauth'],
    base_url: null,
    own_base_url: true,
    health: null,
  },
} as const satisfies Record<string, Provider>

export type ProviderName = keyof typeof catalogue
export const providerNames = Object.keys(catalogue) as [ProviderName, ...ProviderName[]]

/** The row of a provider, in the general type. */
export const providerOf = (name: ProviderName): Provider => catalogue[name]
