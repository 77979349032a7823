import { CallFault, type CallState, type ToolCall } from '../../lib/runner-calls.ts'
import { callTool, type ToolAnswer } from '../tools/calls.ts'
import { type NamedTool, offersOf } from '../tools/offers.ts'
import { Tool, type ToolDocument } from '../tools/tools.ts'
import { callOnce, type CallResult } from './run-calls.ts'
import type { RunnerOf } from './run-nodes.ts'
import { secondsOf, stepOfRun } from './run-steps.ts'
import type { ReadVersion } from './versions.ts'

// Tools that nodes of runs call: those that the version names, as they were found by its publication.

interface Attempt {
  run_id: string
  node: string
  attempt: number
}

/** Calls a tool of a `tool` node, or of an `llm` node. Throws NotFound, and `attempt_over`. */
export async function callRunTool(runner: RunnerOf, its: Attempt, call: ToolCall): Promise<CallState> {
  const { step, version } = await stepOfRun(runner, its.node, 'tool', 'llm')
  const { key, at, name, arguments: given, wait_ms } = call
  const asked = ['tool', key, at, name, given]
  return callOnce(runner, { ...its, asked }, wait_ms, async (signal) => {
    const use = step.kind === 'tool' ? step : step.tools?.[at ?? -1]
    if (!use || (use.name !== undefined && name !== null && name !== use.name))
      throw new CallFault('tool_missing', 'The node has no such tool', { permanent: true })
    const tool = await toolNamed(version, use.tool)
    const answer = await callTool(tool, {
      name: use.name ?? name,
      arguments: objectIn(given),
      withinMs: secondsOf(step) * 1000,
      signal,
    }).catch((error: unknown) => asAnswer(error, step.kind === 'llm'))
    return step.kind === 'llm' ? forModel(answer) : forNode(answer)
  })
}

/** What an `llm` node offers its model. Throws NotFound, and `attempt_over`. */
export async function offeredTools(
  runner: RunnerOf,
  its: Attempt,
  { key, wait_ms }: { key: string; wait_ms: number },
): Promise<CallState> {
  const { step, version } = await stepOfRun(runner, its.node, 'llm')
  return callOnce(runner, { ...its, asked: ['tools', key] }, wait_ms, async (signal) => {
    const named: NamedTool[] = []
    for (const { tool, name } of step.tools ?? [])
      named.push({ tool: await toolNamed(version, tool), name: name ?? null })
    const offered = await offersOf(named, secondsOf(step) * 1000, signal)
    return { output: JSON.stringify(offered), is_error: false }
  })
}

async function toolNamed({ tenant_id, uses }: ReadVersion, reference: string): Promise<ToolDocument> {
  const use = uses.find((one) => one.kind === 'tool' && one.reference === reference)
  const tool = use?.id && (await Tool.findOne({ _id: use.id, tenant_id }).lean())
  if (!tool) throw new CallFault('tool_missing', 'The tool has been deleted', { permanent: true })
  return tool
}

function objectIn(json: string): Record<string, unknown> {
  const value: unknown = JSON.parse(json)
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new CallFault('arguments_invalid', 'The arguments are not an object', { permanent: true })
  return value as Record<string, unknown>
}

/** A model can give other arguments. */
function asAnswer(error: unknown, isForModel: boolean): ToolAnswer {
  if (isForModel && error instanceof CallFault && error.code === 'arguments_invalid')
    return { output: error.message, is_error: true }
  throw error
}

/** A node fails with its tool. */
function forNode({ output, is_error, lasting = false }: ToolAnswer): CallResult {
  if (is_error) throw new CallFault('tool_failed', textOf(output), { permanent: lasting })
  return { output: JSON.stringify(output ?? null), is_error }
}

const textOf = (output: unknown): string =>
  typeof output === 'string' ? output : JSON.stringify(output ?? null)

/** Of a tool's answer that a model reads. */
const mostModelChars = 64 * 1024

/** The answer as a text for a model: what is too long is cut, and says so. */
function forModel({ output, is_error }: ToolAnswer): CallResult {
  const text = textOf(output)
  const cut =
    text.length <= mostModelChars
      ? text
      : `${text.slice(0, mostModelChars)}\n[cut: the answer has ${text.length} characters]`
  return { output: JSON.stringify(cut), is_error }
}
