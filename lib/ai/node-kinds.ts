import { z } from 'zod'
import { bounds } from './bounds.ts'
import {
  Constant,
  Expression,
  JsonSchema,
  NodeName,
  redacting,
  Reference,
  Template,
  Value,
} from './fields.ts'

// The kinds of nodes, and what each takes.

const Need = z
  .string()
  .regex(/^[a-z][a-z0-9_]{0,62}(\.[a-z][a-z0-9_]{0,62})?$/, 'must be the name of a node, or `switch.case`')

const flow = {
  needs: z.array(Need).max(bounds.needs).optional().describe('Nodes that must end before this one begins'),
  when: Expression.optional().describe('If it is false, the node is skipped'),
  on_error: z
    .union([z.literal('fail'), z.strictObject({ value: Constant }), z.strictObject({ goto: NodeName })])
    .optional()
    .describe(
      'What follows if the last attempt fails: the run fails, the node gets this output, or that node takes over',
    ),
}

/** Of what does more than evaluate expressions. */
const attempts = {
  timeout_sec: z.int().min(1).max(bounds.wallSec).optional().describe('Seconds that one attempt may take'),
  retry: z
    .strictObject({
      max: z.int().min(0).max(10).describe('Attempts after the first'),
      backoff_sec: z
        .number()
        .min(0.1)
        .max(300)
        .optional()
        .describe('Seconds before the second attempt; each later pause is twice as long'),
    })
    .optional(),
}

/** What a node has that does not say. */
export const defaults = {
  timeout_sec: { llm: 120, retrieve: 30, tool: 60, http: 30, workflow: 3_600 },
  retry: { max: 2, backoff_sec: 1 },
  top_k: 5,
  max_tool_rounds: 10,
  max_items: bounds.mapItems,
  at_once: 4,
} as const

const toolUse = {
  tool: Reference.describe('Id or name of a stored tool'),
  name: z
    .string()
    .min(1)
    .max(200)
    .optional()
    .describe('For an MCP server: its tool; for OpenAPI: the operation'),
}

const steps = {
  llm: {
    kind: z.literal('llm'),
    model: NodeName.describe('A name in `models`'),
    messages: z
      .array(z.strictObject({ role: z.enum(['system', 'user', 'assistant']), content: Template }))
      .min(1)
      .max(100),
    tools: z.array(z.strictObject(toolUse)).max(32).optional().describe('Tools that the model may call'),
    max_tool_rounds: z.int().min(1).max(20).optional(),
    output_schema: JsonSchema.optional().describe(
      `The JSON Schema of the answer; without it, the answer is text. ${redacting}`,
    ),
  },
  retrieve: {
    kind: z.literal('retrieve'),
    collection: Reference.describe('Name of a collection'),
    query: Template,
    top_k: z.int().min(1).max(50).optional(),
  },
  tool: {
    kind: z.literal('tool'),
    ...toolUse,
    arguments: z.record(z.string(), z.unknown()).optional().describe('JSON with expressions in its texts'),
  },
  http: {
    kind: z.literal('http'),
    method: z.enum(['GET', 'POST', 'PUT', 'PATCH', 'DELETE']),
    url: Template,
    headers: z
      .record(z.string().regex(/^[A-Za-z0-9-]{1,100}$/, 'must be the name of a header'), Template)
      .optional(),
    body: Value.optional(),
    output_schema: JsonSchema.optional().describe(`The JSON Schema of the answer’s body. ${redacting}`),
  },
  workflow: {
    kind: z.literal('workflow'),
    workflow: Reference.describe('Id or name of another workflow'),
    version: z.int().min(1).optional().describe('The version; without it, the version published last'),
    input: Value,
  },
}
const template = { kind: z.literal('template'), value: Value }

const forEachItem = <S extends z.ZodRawShape>(shape: S) =>
  z.strictObject({
    ...shape,
    on_error: z
      .union([z.literal('fail'), z.strictObject({ value: Value })])
      .optional()
      .describe('What follows if an item fails'),
  })

const ItemStep = z.discriminatedUnion('kind', [
  forEachItem({ ...steps.llm, ...attempts }),
  forEachItem({ ...steps.retrieve, ...attempts }),
  forEachItem({ ...steps.tool, ...attempts }),
  forEachItem({ ...steps.http, ...attempts }),
  forEachItem({ ...steps.workflow, ...attempts }),
  forEachItem(template),
])
export type ItemStep = z.output<typeof ItemStep>

export const NodeSpec = z.discriminatedUnion('kind', [
  z.strictObject({ ...steps.llm, ...flow, ...attempts }),
  z.strictObject({ ...steps.retrieve, ...flow, ...attempts }),
  z.strictObject({ ...steps.tool, ...flow, ...attempts }),
  z.strictObject({ ...steps.http, ...flow, ...attempts }),
  z.strictObject({ ...steps.workflow, ...flow, ...attempts }),
  z.strictObject({ ...template, ...flow }),
  z.strictObject({
    kind: z.literal('switch'),
    cases: z
      .array(z.strictObject({ name: NodeName, when: Expression }))
      .min(1)
      .max(20)
      .describe('The name of the first case whose `when` is true is the node’s output'),
    default: NodeName.optional().describe('The case if none is true; without it, the node fails'),
    ...flow,
  }),
  z.strictObject({
    kind: z.literal('map'),
    items: Expression.describe('CEL expression of a list'),
    max_items: z.int().min(1).max(bounds.mapItems).optional(),
    at_once: z.int().min(1).max(bounds.mapAtOnce).optional(),
    do: ItemStep.describe('What is done with each item; its expressions have `item` and `index`'),
    ...flow,
  }),
  z.strictObject({
    kind: z.literal('merge'),
    take: z
      .enum(['first', 'list', 'object'])
      .describe('Of the needs that succeeded: the first one’s output, a list of outputs, or outputs by name'),
    ...flow,
  }),
  z.strictObject({
    kind: z.literal('approve'),
    message: Template.describe('What a person is asked'),
    deadline_sec: z.int().min(1).max(bounds.wallSec),
    ...flow,
  }),
])
export type NodeSpec = z.output<typeof NodeSpec>
export type NodeKind = NodeSpec['kind']
