import { z } from 'zod'
import { bounds } from './ai/bounds.ts'
import { NodeName } from './ai/fields.ts'
import { PublicKey } from './host-protocol.ts'

// Runners of AI workflows and the internal API.

/** What a runner carries out: a version of a workflow, which never changes. */
export const RunnerSpec = z.object({
  workflow_id: z.string(),
  version: z.int(),
  spec_sha256: z.string(),
  spec: z.record(z.string(), z.unknown()),
  /** What validation has learned of the spec (lib/ai/plan.ts). */
  plan: z.record(z.string(), z.unknown()),
})
export type RunnerSpec = z.infer<typeof RunnerSpec>

/** How a node stands for those that need it. A failure with `{"value": …}` counts as a success. */
export const NodeEnd = z.object({
  status: z.enum(['succeeded', 'failed', 'skipped', 'cancelled']),
  /** What a switch chose. */
  case: z.string().nullable(),
})
export type NodeEnd = z.infer<typeof NodeEnd>

/** How an attempt leaves a node. `waiting`: the run's workflow waits for something that needs no runner. */
export const NodeAnswer = z.object({
  status: z.enum([...NodeEnd.shape.status.options, 'waiting']),
  case: z.string().nullable(),
  /** Of a map whose items are runs: how many there are. */
  items: z.int().optional(),
  /** Of a row: how many of its nodes have succeeded before this one. */
  passed: z.int().optional(),
  /** Of a row: it has given the run its output. */
  output: z.boolean().optional(),
})
export type NodeAnswer = z.infer<typeof NodeAnswer>

/** What expressions see. */
export const Given = z.object({
  /** JSON of their variables (lib/ai/programs.ts). */
  given: z.string(),
  /** The nodes in it. */
  nodes: z.record(z.string(), NodeEnd),
})
export type Given = z.infer<typeof Given>

/** What an attempt of a node gets; `done`: an earlier attempt has ended the node, and its answer was lost. */
export const Begun = z.object({
  done: NodeAnswer.nullable(),
  ...Given.shape,
  /** The run is the retry of another, of which it may take nodes over. */
  retries: z.boolean().optional(),
})
export type Begun = z.infer<typeof Begun>

/** A value as JSON: a text, so that nobody on its way reads it. */
const Output = z.string()

const ItemCount = z.int().min(0).max(bounds.mapItems)

/** How an attempt ends a node. Not its failure: the run knows whether there is another attempt. */
export const Ended = z.discriminatedUnion('status', [
  z.strictObject({ status: z.literal('succeeded'), case: z.string().max(63).nullable(), output: Output }),
  z.strictObject({ status: z.literal('skipped') }),
  /** A map has done its items: their outputs become its own. */
  z.strictObject({ status: z.literal('gathered'), items: ItemCount }),
  /** It waits for a person who is asked this, for a run, or for the runs of so many items. */
  z.strictObject({
    status: z.literal('waiting'),
    message: z.string().nullable(),
    items: ItemCount.nullable(),
  }),
])
export type Ended = z.infer<typeof Ended>

/** What one activity carries out, node by node, as long as each succeeds. */
export interface NodesInARow {
  /** `within_sec`: how long one may take. */
  nodes: { node: string; within_sec: number }[]
  /** The run's output follows the last. */
  output: boolean
}

/** A token for calls of a model at the gateway for models. */
export const ModelGrant = z.object({
  token: z.string(),
  /** Of the connector: it says which API is spoken. */
  provider: z.string(),
})
export type ModelGrant = z.infer<typeof ModelGrant>

/** A question to the collection of a node of kind `retrieve`. */
export const Retrieval = z.strictObject({ query: z.string() })

/** What answers it best: the node's output. */
export const Passages = z.object({
  passages: z.array(
    z.object({
      text: z.string(),
      score: z.number(),
      document_id: z.string(),
      document: z.string(),
      /** Of the text in its document; null: it is not known. */
      place: z.record(z.string(), z.union([z.string(), z.number()])).nullable(),
    }),
  ),
})
export type Passages = z.infer<typeof Passages>

/** A piece of what a model says, on its way to those who watch the run. */
export const RunToken = z.strictObject({
  /** A node, or an item of a map (`read-3`). */
  node: z.string().max(67),
  attempt: z.int().min(1),
  /** Of a model, counted from 0 in the attempt. */
  call: z.int().min(0),
  text: z.string(),
})
export type RunToken = z.infer<typeof RunToken>

const mostTokens = 1_000
export const RunTokens = z.strictObject({ tokens: z.array(RunToken).min(1).max(mostTokens) })

/** Characters of an output of a run that comes with the end of a node. */
export const smallOutput = 64 * 1024

/** A node has succeeded, and its runner goes on. */
export const Turn = z.strictObject({
  case: z.string().max(63).nullable(),
  output: Output,
  /** What models of the run have said and was not sent yet. */
  tokens: z.array(RunToken).max(mostTokens),
  /** What the runner would do next: a node, the run's output if it has the values at hand, or else their fetching. */
  next: z.union([
    z.strictObject({ node: NodeName }),
    z.strictObject({ output: z.string().max(smallOutput) }),
    z.literal('output'),
    z.null(),
  ]),
})
export type Turn = z.infer<typeof Turn>

/** `begun`: of what is next. `output`: the run has its output. Without either, the run's workflow says what is next. */
export const Turned = z.object({ begun: Begun.nullable(), output: z.boolean().optional() })
export type Turned = z.infer<typeof Turned>

/** The run's output. */
export const RunOutput = z.strictObject({ output: Output })

/** Of requests with an output: JSON in a text of JSON is at most twice as long. */
export const outputBodyKib = 2 * 8 * 1024 + 1

/** Of requests with tokens: what a runner lets wait (worker/runner/token-sender.ts), as JSON. */
export const tokensBodyKib = 1024
const smallOutputKib = 2 * 4 * (smallOutput / 1024)
export const turnBodyKib = outputBodyKib + tokensBodyKib + smallOutputKib

/** A runner's private key, as a JSON Web Key. */
export const RunnerKey = z.strictObject({ ...PublicKey.shape, d: z.string().regex(/^[\w-]{43}$/) })
export type RunnerKey = z.infer<typeof RunnerKey>

/** Names a call of a model within its run, for the gateway for models (docs/model-gateway.md). */
export const callKeyHeader = 'x-keelson-call'

/** The node that makes a call of this name, also if it is a map whose item calls; null: it names none. */
export const nodeOfCall = (key: string): string | null =>
  /^([a-z][a-z0-9_]{0,62})(-\d{1,3})?\//.exec(key)?.[1] ?? null
