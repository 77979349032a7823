import { z } from 'zod'
import { authTypes, type GivenDefinition, methods, placeholdersIn } from '../../models/tools/definitions.ts'
import { secretInArguments, secretInHeader, secretInUrl } from '../../models/tools/plain-secrets.ts'
import { isJsonSchema } from '../../models/tools/schemas.ts'
import { changeable as ofInstances } from '../compute/instances.ts'
import { Id, Name, Tags } from '../fields.ts'

// What a tool may be: one strict schema for each kind.

const refuse = (
  context: { issues: z.core.$ZodRawIssue[] },
  input: unknown,
  path: string[],
  message: string,
) => context.issues.push({ code: 'custom', input, path, message })

/** A URL of the web without a secret. */
export const WebUrl = z
  .string()
  .max(2000)
  .check((context) => {
    const parsed = URL.parse(context.value)
    if (!parsed || !/^https?:$/.test(parsed.protocol) || parsed.hash)
      refuse(context, '', [], 'must be an http or https URL without a fragment')
    const found = secretInUrl(context.value)
    if (found) refuse(context, '', [], `${found}: use auth and secret`)
  })

const Headers = z
  .record(z.string().regex(/^[A-Za-z0-9-]{1,64}$/, 'must be the name of a header'), visible(1000))
  .check((context) => {
    for (const [name, value] of Object.entries(context.value)) {
      const found = secretInHeader(name, value)
      if (found) refuse(context, '', [name], `${found}: use auth and secret`)
    }
    if (Object.keys(context.value).length > 20) refuse(context, '', [], 'must have at most 20 headers')
  })

/** What a header may hold. */
function visible(atMost: number) {
  return z
    .string()
    .max(atMost)
    .regex(/^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$/, 'must be printable ASCII without space at the ends')
}

const jsonAtMost = (kib: number) =>
  z
    .record(z.string(), z.unknown())
    .refine((value) => JSON.stringify(value).length <= kib * 1024, `must have at most ${kib} KiB as JSON`)

const InputSchema = jsonAtMost(64)
  .refine(({ type }) => type === 'object', 'must be a JSON Schema of type object')
  .refine(isJsonSchema, 'must be a JSON Schema')

const Document = jsonAtMost(256).refine(
  ({ openapi, paths }) =>
    /^3\.[01]\.\d+$/.test(String(openapi)) && typeof paths === 'object' && paths !== null,
  'must be an OpenAPI document of version 3.0 or 3.1 with paths',
)

const secretHeader = z
  .string()
  .regex(/^[A-Za-z0-9-]{1,64}$/, 'must be the name of a header')
  .refine(
    (name) => !/^(host|connection|content-.*|transfer-encoding|accept|user-agent|mcp-.*)$/i.test(name),
    'is a header of the protocol',
  )

const Auth = z
  .discriminatedUnion('type', [
    z.strictObject({ type: z.literal('none') }),
    z.strictObject({ type: z.literal('bearer'), connector_id: Id.optional() }),
    z.strictObject({ type: z.literal('header'), name: secretHeader }),
    z.strictObject({ type: z.literal('basic') }),
    z.strictObject({ type: z.literal('oauth'), connector_id: Id }),
  ])
  .default({ type: 'none' })
  .describe(
    'How the tool authenticates: with its own `secret` (bearer, header, or basic as `user:password`), or with a connector (oauth, or bearer with `connector_id`), which needs the permission `connectors:use`',
  )

const Secret = z
  .string()
  .min(1)
  .max(8192)
  .regex(/^[^\r\n\0]*$/, 'must be one line')
  .optional()
  .describe('The token, key, or `user:password` of `auth`; it is never shown again')

const common = {
  name: Name,
  description: z.string().max(2000).default(''),
  tags: Tags.default({}),
}
const remote = { ...common, auth: Auth, secret: Secret }
const VariableName = z.string().regex(/^[A-Za-z_][A-Za-z0-9_]{0,127}$/, 'must be the name of a variable')

const parts = {
  url: WebUrl,
  command: z
    .string()
    .regex(/^[\w./@+-]{1,255}$/, 'must be a program, without arguments')
    .describe('The command, which runs only in a microVM of its own, never on the platform'),
  args: z
    .array(
      z
        .string()
        .max(1000)
        .regex(/^[^\0]*$/, 'must have no NUL'),
    )
    .max(50)
    .check((context) => {
      const found = secretInArguments(context.value)
      if (found) refuse(context, '', [], `${found}: use env`)
    })
    .default([]),
  env: z
    .record(
      VariableName,
      z
        .string()
        .max(8192)
        .regex(/^[^\0]*$/, 'must have no NUL'),
    )
    .refine((env) => Object.keys(env).length <= 50, 'must have at most 50 variables')
    .optional()
    .describe('Variables of the command. Their values are secret: only their names are shown'),
  image: ofInstances.image
    .optional()
    .describe('The image of the microVM in which the command runs; default: the platform’s, with Node'),
  subnet_id: Id.optional().describe(
    'The subnet of that microVM. Without it the command has no network, and `npx` cannot download',
  ),
  method: z.enum(methods),
  headers: Headers.default({}).describe('Headers sent with each request; a header with a secret is refused'),
  input_schema: InputSchema.describe('The JSON Schema of a call’s input'),
  document: Document,
  builtin: z
    .string()
    .regex(/^[a-z][a-z0-9_]{0,62}$/, 'must be 1 to 63 of a-z, 0-9 and _, the first a letter')
    .describe('The platform’s built-in tool'),
}

const HttpTool = z
  .strictObject({
    kind: z.literal('http'),
    method: parts.method,
    url: parts.url.describe('A template such as `https://api.example.com/users/{id}`, filled from the input'),
    headers: parts.headers,
    input_schema: parts.input_schema,
    ...remote,
  })
  .check((context) => {
    const { url, input_schema } = context.value
    const [, authority = ''] = /^\w+:\/\/([^/?#]*)/.exec(url) ?? []
    if (/[{}]/.test(authority)) refuse(context, '', ['url'], 'must have no placeholder in the host')
    const known = Object.keys((input_schema['properties'] as object | undefined) ?? {})
    const unknown = placeholdersIn(url).filter((name) => !known.includes(name))
    if (unknown.length)
      refuse(context, '', ['url'], `${unknown.join(', ')}: no such property of input_schema`)
  })

const OpenApiTool = z
  .strictObject({
    kind: z.literal('openapi'),
    url: parts.url.optional().describe('The URL of the document'),
    document: parts.document.optional(),
    ...remote,
  })
  .check((context) => {
    const { url, document } = context.value
    if ((url === undefined) === (document === undefined))
      refuse(context, '', [], 'must have either url or document')
  })

/** A whole tool. */
export const NewTool = z.discriminatedUnion('kind', [
  z.discriminatedUnion('transport', [
    z.strictObject({
      kind: z.literal('mcp'),
      transport: z.enum(['streamable_http', 'sse', 'auto']),
      url: parts.url,
      ...remote,
    }),
    z.strictObject({
      kind: z.literal('mcp'),
      transport: z.literal('stdio'),
      command: parts.command,
      args: parts.args,
      env: parts.env,
      image: parts.image,
      subnet_id: parts.subnet_id,
      ...common,
    }),
  ]),
  HttpTool,
  OpenApiTool,
  z.strictObject({ kind: z.literal('builtin'), builtin: parts.builtin, ...common }),
])

/** A change: what is given must make a whole tool with what there is. Its kind stays. */
export const ToolChanges = z
  .strictObject({
    name: common.name,
    description: z.string().max(2000),
    tags: Tags,
    transport: z.enum(['streamable_http', 'sse', 'auto', 'stdio']),
    url: z.string(),
    command: z.string(),
    args: z.array(z.string()),
    env: z.record(z.string(), z.string()),
    image: z.string(),
    subnet_id: z.string(),
    method: z.string(),
    headers: z.record(z.string(), z.string()),
    input_schema: z.record(z.string(), z.unknown()),
    document: z.record(z.string(), z.unknown()),
    builtin: z.string(),
    auth: z.strictObject({
      type: z.enum(authTypes),
      name: z.string().optional(),
      connector_id: Id.optional(),
    }),
    secret: z.string(),
  })
  .partial()

/** The present definition with the changes, without what they displace. */
export function merged(present: GivenDefinition, changes: z.output<typeof ToolChanges>): object {
  const { url, document, ...kept } = present
  const sources = 'url' in changes || 'document' in changes ? {} : { url, document }
  const becomes = changes.transport ?? present.transport
  const moves = (becomes === 'stdio') !== (present.transport === 'stdio')
  const { kind } = present
  const base = moves ? { kind } : kind === 'openapi' ? { ...kept, ...sources } : present
  const all = { ...base, ...changes }
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined))
}
