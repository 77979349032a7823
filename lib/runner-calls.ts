import { z } from 'zod'

// Calls that the internal API makes for a runner, which has no network: requests of `http` nodes, and calls of tools. A call may
// take longer than a request to the API, so the runner asks again until the call has ended.

/** What names a call within its node. Each attempt gives the same names to the same calls. */
const Key = z.string().regex(/^[\w./-]{1,100}$/)

/** How long the API may wait for the end of the call before it answers. */
const Wait = z.int().min(0).max(5_000)
const named = { key: Key, wait_ms: Wait }

/** A request of an `http` node. Its method is the spec's. */
export const HttpCall = z.strictObject({
  ...named,
  url: z.string().max(64 * 1024),
  headers: z.record(z.string(), z.string()),
  /** JSON; null: there is none. */
  body: z.string().nullable(),
})
export type HttpCall = z.infer<typeof HttpCall>

/** A call of a tool. */
export const ToolCall = z.strictObject({
  ...named,
  /** Of an `llm` node: the place among its `tools`. Null: the tool of a `tool` node. */
  at: z.int().min(0).nullable(),
  /** Of the server's tools, where the spec does not name one. */
  name: z.string().min(1).max(200).nullable(),
  /** JSON of an object. */
  arguments: z.string(),
})
export type ToolCall = z.infer<typeof ToolCall>

/** A question for what an `llm` node offers its model. */
export const ToolsCall = z.strictObject(named)

/** What is called; not how long the runner waits for it. */
export type Asked<C extends { wait_ms: number }> = Omit<C, 'wait_ms'>

/** How a call stands. */
export const CallState = z.discriminatedUnion('state', [
  z.strictObject({ state: z.literal('open') }),
  z.strictObject({
    state: z.literal('done'),
    /** JSON. */
    output: z.string(),
    /** The tool says that it has failed. */
    is_error: z.boolean(),
  }),
  z.strictObject({
    state: z.literal('failed'),
    code: z.string(),
    message: z.string(),
    permanent: z.boolean(),
  }),
])
export type CallState = z.infer<typeof CallState>

/** A tool as a model is offered it. */
export interface OfferedTool {
  /** Its place among the node's `tools`. */
  at: number
  /** Of the server's tools; null: the tool is one. */
  name: string | null
  /** The name that the model uses: 1 to 64 of A-Z a-z 0-9 _ and -. */
  shown: string
  description: string
  input_schema: Record<string, unknown>
}

/** Why a call has no result. Its text is for the workflow's author, and has no secret. */
export class CallFault extends Error {
  override readonly name = 'CallFault'
  readonly code: string
  /** Another attempt cannot help. */
  readonly permanent: boolean

  constructor(code: string, message: string, { permanent, cause }: { permanent: boolean; cause?: unknown }) {
    super(message, { cause })
    this.code = code
    this.permanent = permanent
  }
}
