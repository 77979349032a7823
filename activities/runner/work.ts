import type { ExpressionPool } from '../../lib/ai/expression-pool.ts'
import type { Plan } from '../../lib/ai/plan.ts'
import type { RedactedNode } from '../../lib/ai/redaction.ts'
import type { Spec } from '../../lib/ai/spec.ts'
import { stepNamed } from '../../lib/ai/steps.ts'
import type { Asked, CallState, HttpCall, ToolCall } from '../../lib/runner-calls.ts'
import type { Called, ItemEnd, OpenedMap } from '../../lib/runner-maps.ts'
import type {
  Begun,
  Ended,
  Given,
  ModelGrant,
  Passages,
  RunToken,
  Turn,
  Turned,
} from '../../lib/runner-protocol.ts'

/** The runner's part of the internal API, as nodes use it. */
export interface RunApi extends CallingApi {
  beginNode(run: string, node: string, attempt: number, signal: AbortSignal): Promise<Begun>
  endNode(run: string, node: string, attempt: number, end: Ended, signal: AbortSignal): Promise<void>
  turnNode(run: string, node: string, attempt: number, turn: Turn, signal: AbortSignal): Promise<Turned>
  givenForOutput(run: string, signal: AbortSignal): Promise<Given>
  giveOutput(run: string, output: string, signal: AbortSignal): Promise<void>
  retrieve(run: string, node: string, query: string, signal: AbortSignal): Promise<Passages>
  openItems(run: string, node: string, attempt: number, all: number, signal: AbortSignal): Promise<OpenedMap>
  endItems(run: string, node: string, ends: ItemEnd[], signal: AbortSignal): Promise<void>
  givenForNode(run: string, node: string, signal: AbortSignal): Promise<Given>
  callWorkflow(
    run: string,
    node: string,
    attempt: number,
    input: string,
    signal: AbortSignal,
  ): Promise<Called>
  /** `refused`: a token that does not open the gateway for models any more. */
  modelGrant(run: string, alias: string, signal: AbortSignal, refused?: string): Promise<ModelGrant>
}

/** How a call has ended. */
export type CallEnd = Exclude<CallState, { state: 'open' }>

/** Calls that the API makes for a node. Each is made once, even if several attempts ask for it. */
export interface CallingApi {
  callHttp(
    run: string,
    node: string,
    attempt: number,
    asked: Asked<HttpCall>,
    signal: AbortSignal,
  ): Promise<CallEnd>
  callTool(
    run: string,
    node: string,
    attempt: number,
    asked: Asked<ToolCall>,
    signal: AbortSignal,
  ): Promise<CallEnd>
  /** The JSON of what an `llm` node offers its model. */
  offeredTools(
    run: string,
    node: string,
    attempt: number,
    asked: { key: string },
    signal: AbortSignal,
  ): Promise<CallEnd>
}

/** A call of a model. */
export interface ModelCall {
  path: string
  body: object
  token: string
  /** Names the call within its run: when it is repeated, the gateway for models has the first answer. */
  key: string
}

/** Calls a model. With `onText` the answer streams, and `onText` gets its text. Rejects if there is no whole answer. */
export type CallModel = (
  call: ModelCall,
  signal: AbortSignal,
  onText?: (text: string) => void,
) => Promise<{ status: number; said: string }>

/** Tells those who watch a run what its models say. */
export interface Tokens {
  say(run: string, token: RunToken): void
  /** Resolves when what was said until now is sent, or is lost. */
  sent(run: string): Promise<void>
  /**
   * What was said of a node until now and is not sent, for a request that takes it along. Other nodes' tokens stay: each
   * node's come before its own end.
   */
  take(run: string, node: string): Promise<RunToken[]>
}

/** What a runner has for its nodes. */
export interface RunnerWork {
  api: RunApi
  callModel: CallModel
  tokens: Tokens
  pool: Pick<ExpressionPool, 'evaluate' | 'check'>
  spec: Spec
  plan: Plan
  /** Names the version: its expressions have the same types each time. */
  key: string
}

/** What is redacted of a node, or of the map that an item is of; undefined: nothing. */
export function redactedNode(
  { plan, spec }: Pick<RunnerWork, 'plan' | 'spec'>,
  name: string,
): RedactedNode | undefined {
  const whole = stepNamed(spec.nodes, name)?.map ?? name
  const nodes = plan.redacted?.nodes ?? {}
  return Object.hasOwn(nodes, whole) ? nodes[whole] : undefined
}

/** The JSON of the only value in the JSON of an object by pointers: a large one is not read for that. */
export function jsonAt(pointer: string, values: string): string {
  const begin = `{${JSON.stringify(pointer)}:`
  if (!values.startsWith(begin)) throw new Error(`${pointer} is not what was evaluated`)
  return values.slice(begin.length, -1)
}
