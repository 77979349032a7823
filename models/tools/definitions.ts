// What a tool is, by kind. api/tools/fields.ts has the schema that lets in only whole definitions.

export const toolKinds = ['mcp', 'http', 'openapi', 'builtin'] as const
export type ToolKind = (typeof toolKinds)[number]

/** `auto`: streamable HTTP, and SSE where that is not served. */
export const transports = ['streamable_http', 'sse', 'auto', 'stdio'] as const
export type Transport = (typeof transports)[number]

export const methods = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'] as const
export type Method = (typeof methods)[number]

export const authTypes = ['none', 'bearer', 'header', 'basic', 'oauth'] as const

/** How the tool shows who it is. The secret itself is apart, and sealed. */
export interface ToolAuth {
  type: (typeof authTypes)[number]
  /** Of `header`: the header with the secret. */
  name: string | null
  /** Of `oauth`, and of `bearer` without a secret: whose credential it is. */
  connector_id: string | null
}

/** What each kind has; null or empty what it has not. */
export interface Definition {
  kind: ToolKind
  transport: Transport | null
  /** mcp: the server. http: a template, with `{name}` for what the input has. openapi: where the document is. */
  url: string | null
  command: string | null
  args: string[]
  /** Of stdio: the image of the microVM in which the command runs. Null: the platform's. */
  image: string | null
  /** Of stdio: the subnet of that microVM. Null: it has no network. */
  subnet_id: string | null
  method: Method | null
  headers: Record<string, string>
  input_schema: Record<string, unknown> | null
  document: Record<string, unknown> | null
  builtin: string | null
  auth: ToolAuth
}

/** A definition as it is given: without what its kind has not. */
export interface GivenDefinition {
  kind: ToolKind
  transport?: Transport | undefined
  url?: string | undefined
  command?: string | undefined
  args?: string[] | undefined
  image?: string | undefined
  subnet_id?: string | undefined
  method?: Method | undefined
  headers?: Record<string, string> | undefined
  input_schema?: Record<string, unknown> | undefined
  document?: Record<string, unknown> | undefined
  builtin?: string | undefined
  auth?: { type: ToolAuth['type']; name?: string | undefined; connector_id?: string | undefined } | undefined
}

export const definitionOf = (given: GivenDefinition): Definition => ({
  kind: given.kind,
  transport: given.transport ?? null,
  url: given.url ?? null,
  command: given.command ?? null,
  args: given.args ?? [],
  image: given.image ?? null,
  subnet_id: given.subnet_id ?? null,
  method: given.method ?? null,
  headers: given.headers ?? {},
  input_schema: given.input_schema ?? null,
  document: given.document ?? null,
  builtin: given.builtin ?? null,
  auth: {
    type: given.auth?.type ?? 'none',
    name: given.auth?.name ?? null,
    connector_id: given.auth?.connector_id ?? null,
  },
})

/** The opposite: the definition as it would be given. */
export function givenOf(of: Definition): GivenDefinition {
  const { kind, transport, url, command, image, subnet_id, method, input_schema, document, builtin } = of
  const { type, name, connector_id } = of.auth
  const auth = {
    type,
    ...(name === null ? {} : { name }),
    ...(connector_id === null ? {} : { connector_id }),
  }
  const isHttp = kind !== 'builtin' && transport !== 'stdio'
  return {
    kind,
    ...(transport === null ? {} : { transport }),
    ...(url === null ? {} : { url }),
    ...(command === null ? {} : { command, args: of.args }),
    ...(image === null ? {} : { image }),
    ...(subnet_id === null ? {} : { subnet_id }),
    ...(method === null ? {} : { method, headers: of.headers }),
    ...(input_schema === null ? {} : { input_schema }),
    ...(document === null ? {} : { document }),
    ...(builtin === null ? {} : { builtin }),
    ...(isHttp ? { auth } : {}),
  }
}

/**
 * The one place that may get the tool's credential, as an origin; null: none can be named. An OpenAPI document that was
 * given whole names it as its first server.
 */
export function originOf({ url, document }: Pick<Definition, 'url' | 'document'>): string | null {
  const servers = document?.['servers']
  const first: unknown = Array.isArray(servers) ? servers[0] : null
  const { url: named } = Object(first) as { url?: unknown }
  const text = url ?? (typeof named === 'string' ? named : null)
  const parsed = text === null ? null : URL.parse(text)
  return parsed && /^https?:$/.test(parsed.protocol) ? parsed.origin : null
}

/** The names in a template: `/users/{id}` has `id`. */
export const placeholdersIn = (template: string): string[] =>
  [...template.matchAll(/\{(\w+)\}/g)].map(([, name = '']) => name)

/** Why no workflow can call a tool; null: workflows can. */
export function notCallable({ kind, transport }: Pick<Definition, 'kind' | 'transport'>): string | null {
  if (transport === 'stdio')
    return 'is a stdio server, which runs in a microVM for one probe only: workflows call servers at a URL'
  return kind === 'builtin' ? 'is a built-in tool, and the platform has none yet' : null
}
