import mongoose, { Schema } from 'mongoose'
import { NotFound } from '../../lib/problem.ts'
import { usesConnectors } from '../connectors/uses.ts'
import { documentOptions, idField } from '../resources.ts'
import { sealedField } from '../sealed-fields.ts'
import { tenantScoped } from '../tenant-scope.ts'
import { authTypes, type Definition, methods, toolKinds, transports } from './definitions.ts'
import type { Probe } from './probe-records.ts'

/** `unchecked`: as it is now, the tool was never probed. */
export const toolStates = ['unchecked', 'ok', 'failing'] as const
export type ToolState = (typeof toolStates)[number]

/** A tool of a tenant, which its agents and workflows may call. */
export interface ToolDocument extends Omit<Definition, 'input_schema' | 'document'> {
  _id: string
  tenant_id: string
  /** Unique in the tenant. */
  name: string
  description: string
  tags: Record<string, string>
  /** As JSON: their names may hold what MongoDB reads as operators (`$ref`). */
  input_schema_json: string | null
  document_json: string | null
  /** A ToolSecret (secrets.ts); `-`: none. Bound to tenant and id. */
  secret_sealed: string
  secret_hint: string | null
  /** The names of a command's variables. Their values are sealed. */
  env_names: string[]
  /** Counts the changes of what a probe sees, and of the secret. */
  version: number
  status: ToolState
  last_probe: Probe | null
  /** The tools that an MCP server listed last (listings.ts), as JSON. Null: none, or too much. */
  listing_json: string | null
  /** Counts the locks taken on it, as a parent's. */
  turns: number
  created_at: Date
  updated_at: Date
}

const text = { type: String, default: null }
const schema = new Schema<ToolDocument>(
  {
    _id: idField,
    tenant_id: { type: String, required: true },
    name: { type: String, required: true },
    description: { type: String, default: '' },
    tags: { type: Schema.Types.Mixed, default: {} },
    kind: { type: String, required: true, enum: toolKinds },
    transport: { type: String, default: null, enum: [...transports, null] },
    url: text,
    command: text,
    args: { type: [String], default: [] },
    image: text,
    subnet_id: text,
    method: { type: String, default: null, enum: [...methods, null] },
    headers: { type: Schema.Types.Mixed, default: {} },
    input_schema_json: text,
    document_json: text,
    builtin: text,
    auth: { type: { type: String, required: true, enum: authTypes }, name: text, connector_id: text },
    secret_sealed: { type: String, required: true },
    secret_hint: text,
    env_names: { type: [String], default: [] },
    version: { type: Number, required: true },
    status: { type: String, required: true, enum: toolStates },
    last_probe: { type: Schema.Types.Mixed, default: null },
    listing_json: text,
    turns: { type: Number, default: 0 },
  },
  { ...documentOptions, collection: 'tools' },
)
tenantScoped(schema)
schema.index({ tenant_id: 1, name: 1 }, { unique: true })
schema.index({ tenant_id: 1, created_at: -1, _id: -1 })
schema.index({ tenant_id: 1, 'auth.connector_id': 1 })
export const Tool = mongoose.model<ToolDocument>('Tool', schema)

/** The context of a tool's seal: a secret of another tenant or tool does not open. */
export const sealContext = ({ _id, tenant_id }: Pick<ToolDocument, '_id' | 'tenant_id'>): string =>
  `tools:${tenant_id}:${_id}`
sealedField(Tool, 'secret_sealed', sealContext)

usesConnectors('tool', async ({ _id, tenant_id }) => {
  const tools = await Tool.find({ tenant_id, 'auth.connector_id': _id }, { name: 1 }).lean()
  return tools.map((tool) => ({ id: tool._id, name: tool.name }))
})

/** The tenant's tool. Throws NotFound. */
export async function toolOf({ tenant_id }: { tenant_id: string }, _id: string): Promise<ToolDocument> {
  const tool = await Tool.findOne({ _id, tenant_id }).lean()
  if (!tool) throw new NotFound('tool')
  return tool
}

type Stored = Pick<ToolDocument, keyof Omit<Definition, 'input_schema' | 'document'>> &
  Pick<ToolDocument, 'input_schema_json' | 'document_json'>

export const stored = ({ input_schema, document, ...plain }: Definition): Stored => ({
  ...plain,
  input_schema_json: input_schema && JSON.stringify(input_schema),
  document_json: document && JSON.stringify(document),
})

export const definition = (tool: ToolDocument): Definition => ({
  kind: tool.kind,
  transport: tool.transport,
  url: tool.url,
  command: tool.command,
  args: tool.args,
  image: tool.image,
  subnet_id: tool.subnet_id,
  method: tool.method,
  headers: tool.headers,
  input_schema: parsed(tool.input_schema_json),
  document: parsed(tool.document_json),
  builtin: tool.builtin,
  auth: tool.auth,
})

const parsed = (json: string | null): Record<string, unknown> | null =>
  json === null ? null : (JSON.parse(json) as Record<string, unknown>)
