import { createHash } from 'node:crypto'
import { isDeeperThan, runBounds } from '../../lib/ai/bounds.ts'
import { NoValue } from '../../lib/ai/expression-pool.ts'
import { mapAtOnce } from '../../lib/queue.ts'
import type { OfferedTool } from '../../lib/runner-calls.ts'
import { type CallingAttempt, outputOf } from './calls.ts'
import { callsIn, type ModelCallsTool, offering, resultsOf, type ToolResult } from './llm-tools.ts'
import { NodeFault } from './node-faults.ts'

// A model that may call tools: its answer names some, they are called, and the model is asked again with their results. All of it
// is the same each time that an attempt repeats it: the gateway for models keeps the model's answers, and the API the tools'.

/** Of one answer: what goes beyond is refused, and the model may ask again. */
const mostCalls = 16
const callsAtOnce = 4

export interface ToolTurns {
  /** The request's body with the tools, and with what was said since. */
  bodyOf(this: void, body: Record<string, unknown>): Record<string, unknown>
  /** Calls the tools that an answer names. False: it names none, and is the last one. Throws NodeFault. */
  carriedOut(this: void, said: string): Promise<boolean>
}

/** `mostRounds`: how often the model may call tools. `hasSchema`: its last answer is to be JSON. Throws NodeFault. */
export async function toolTurns(
  provider: string,
  { mostRounds, hasSchema }: { mostRounds: number; hasSchema: boolean },
  attempt: CallingAttempt,
): Promise<ToolTurns> {
  const { work, run, name, calls, signal } = attempt
  const asked = { key: `${calls}/tools` }
  const end = await work.api.offeredTools(run, name, attempt.attempt, asked, signal)
  const tools = JSON.parse(outputOf(end)) as OfferedTool[]
  const since: object[] = []
  let rounds = 0

  async function resultOf(
    { name: shown, arguments: given }: ModelCallsTool,
    place: string,
    its: AbortSignal,
  ): Promise<ToolResult> {
    const tool = tools.find((one) => one.shown === shown)
    if (!tool) return wrong(`There is no tool ${shown.slice(0, 100)}`)
    const misfit = await misfitOf(tool, given, attempt)
    if (misfit !== null) return wrong(misfit)
    const call = { key: `${calls}/${place}`, at: tool.at, name: tool.name, arguments: JSON.stringify(given) }
    its.throwIfAborted()
    const answer = await work.api.callTool(run, name, attempt.attempt, call, its)
    const text = JSON.parse(outputOf(answer)) as string
    return { text, is_error: answer.state === 'done' && answer.is_error }
  }

  return {
    bodyOf: (body) => {
      const offered = offering(provider, body, tools, hasSchema)
      return { ...offered, messages: [...(offered['messages'] as object[]), ...since] }
    },
    async carriedOut(said) {
      const wanted = callsIn(provider, said)
      if (wanted.length === 0) return false
      if (rounds === mostRounds)
        throw new NodeFault(
          'tool_rounds_exceeded',
          `After ${mostRounds} rounds of calls, the model wants to call ${wanted.map((one) => one.name).join(', ')}`,
        )
      const round = rounds++
      const places = wanted.map((call, at) => ({ call, at }))
      // If one has no result, the others end: the next attempt makes them.
      const stop = new AbortController()
      const its = AbortSignal.any([signal, stop.signal])
      const results = await mapAtOnce(places, callsAtOnce, ({ call, at }) =>
        at < mostCalls
          ? resultOf(call, `${round}/${at}`, its)
          : Promise.resolve(wrong(`At most ${mostCalls} calls at once are carried out`)),
      ).catch((error: unknown) => {
        stop.abort()
        throw error
      })
      since.push(...resultsOf(provider, said, results))
      return true
    },
  }
}

const wrong = (text: string): ToolResult => ({ text, is_error: true })

/** What is wrong with arguments, for the model; null: nothing, or it cannot be said, and the tool may know. */
async function misfitOf(
  { input_schema: schema }: OfferedTool,
  given: unknown,
  { work: { pool, key } }: CallingAttempt,
): Promise<string | null> {
  if (typeof given !== 'object' || given === null || Array.isArray(given))
    return 'The arguments are not the JSON of an object'
  if (isDeeperThan(given, runBounds.depth)) return 'The arguments are nested too deeply'
  const hash = createHash('sha256').update(JSON.stringify(schema)).digest('hex')
  try {
    const fault = await pool.check({ key: `${key} tool ${hash}`, schema, given: JSON.stringify(given) })
    return fault && `The arguments do not fit: ${fault.pointer || 'they'} ${fault.message}`
  } catch (error) {
    if (error instanceof NoValue) return null // the schema is none, or takes too long
    throw error
  }
}
