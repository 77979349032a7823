import type { NodeSpec } from '../../lib/ai/node-kinds.ts'
import type { Wanted } from '../../lib/ai/evaluate.ts'
import { pointerTo } from '../../lib/ai/templates.ts'
import { NodeFault } from './node-faults.ts'
import type { CallEnd, RunnerWork } from './work.ts'

// Nodes whose work the API does for the runner: requests by HTTP, and calls of tools.

/** What they need of an attempt. */
export interface CallingAttempt {
  work: Pick<RunnerWork, 'api' | 'pool' | 'key'>
  run: string
  name: string
  attempt: number
  /** How the names of its calls begin. */
  calls: string
  signal: AbortSignal
  /** The JSON of what is wanted. */
  evaluate(this: void, pointer: string, wanted: Wanted): Promise<string>
}

type Of<K extends NodeSpec['kind']> = Omit<Extract<NodeSpec, { kind: K }>, 'needs' | 'when' | 'on_error'>

/** The JSON of an answer to the request of an `http` node. Throws NodeFault. */
export async function requestByHttp(node: Of<'http'>, attempt: CallingAttempt): Promise<string> {
  const { work, run, name, calls, signal, evaluate } = attempt
  const url = JSON.parse(await evaluate('/url', { text: node.url })) as string
  const headers: Record<string, string> = {}
  for (const [header, text] of Object.entries(node.headers ?? {}))
    headers[header] = JSON.parse(await evaluate(pointerTo('', 'headers', header), { text })) as string
  const body = node.body === undefined ? null : await evaluate('/body', { value: node.body })
  const asked = { key: `${calls}/http`, url, headers, body }
  const output = outputOf(await work.api.callHttp(run, name, attempt.attempt, asked, signal))
  const schema = node.output_schema
  if (!schema) return output
  const given = JSON.stringify((JSON.parse(output) as { body: unknown }).body)
  const fault = await work.pool.check({ key: `${work.key} ${name} /output_schema`, schema, given })
  // The answer is kept, so another attempt would get the same.
  if (fault) throw new NodeFault('schema_mismatch', `${fault.pointer || 'The body'} ${fault.message}`)
  return output
}

/** The JSON of what the tool of a `tool` node answers. Throws NodeFault. */
export async function callOneTool(node: Of<'tool'>, attempt: CallingAttempt): Promise<string> {
  const { work, run, name, calls, signal, evaluate } = attempt
  const given = await evaluate('/arguments', { value: node.arguments ?? {} })
  const asked = { key: `${calls}/tool`, at: null, name: null, arguments: given }
  return outputOf(await work.api.callTool(run, name, attempt.attempt, asked, signal))
}

/** Throws NodeFault if the call has no result. */
export function outputOf(end: CallEnd): string {
  if (end.state === 'failed') throw new NodeFault(end.code, end.message, { permanent: end.permanent })
  return end.output
}
