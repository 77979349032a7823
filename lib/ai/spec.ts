import { z } from 'zod'
import { bounds } from './bounds.ts'
import { JsonSchema, NodeName, redacting, Value } from './fields.ts'
import { NodeSpec } from './node-kinds.ts'

// The spec of an AI workflow. docs/ai-workflows.md is its reference.

const Parameters = z
  .strictObject({
    temperature: z.number().min(0).max(2).optional(),
    top_p: z.number().min(0).max(1).optional(),
    max_tokens: z
      .int()
      .min(1)
      .max(1_000_000)
      .optional()
      .describe('The largest number of tokens of one answer'),
    stop: z.array(z.string().min(1).max(200)).max(4).optional(),
    seed: z.int().optional(),
    reasoning_effort: z.enum(['low', 'medium', 'high']).optional(),
  })
  .describe('Parameters for the provider, which may ignore some')

export const ModelAlias = z.strictObject({
  connector: z
    .string()
    .min(1)
    .max(100)
    .describe('The id of a connector to a model provider, or the provider for its default connector'),
  model: z.string().min(1).max(200).describe('The provider’s name of the model'),
  parameters: Parameters.optional(),
})

const Budget = z.strictObject({
  usd: z.number().positive().max(1_000_000).optional().describe('Cost of all model calls of a run'),
  tokens: z
    .int()
    .positive()
    .max(1_000_000_000)
    .optional()
    .describe('Input and output tokens of all model calls of a run'),
  wall_sec: z
    .int()
    .min(1)
    .max(bounds.wallSec)
    .describe('Seconds that a run may take, including waits for people'),
})

export const Spec = z
  .strictObject({
    spec: z.literal(1),
    input_schema: JsonSchema.describe(`JSON Schema of a run’s input; ${redacting}`),
    budget: Budget,
    models: z.record(NodeName, ModelAlias).optional().describe('Models by the name that nodes give'),
    nodes: z
      .record(NodeName, NodeSpec)
      .refine((nodes) => Object.keys(nodes).length > 0, 'must have a node')
      .refine((nodes) => Object.keys(nodes).length <= bounds.nodes, `can have ${bounds.nodes} nodes`)
      .describe('Steps by name'),
    output: Value.describe('The run’s output: any JSON, with expressions in its texts'),
  })
  .meta({ id: 'AiWorkflowSpec', title: 'AI workflow' })

export type Spec = z.output<typeof Spec>
export type ModelAlias = z.output<typeof ModelAlias>

/** The published JSON Schema of specs: what an editor checks while a person types. Validation finds more. */
export const specSchema = (): Record<string, unknown> => z.toJSONSchema(Spec, { io: 'input' })

/** The budget's cost in whole billionths of a dollar, as the model gateway counts; null if there is none. */
export const nanoUsdOf = ({ usd }: Spec['budget']): number | null =>
  usd === undefined ? null : Math.round(usd * 1e9)
