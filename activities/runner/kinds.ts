import type { Wanted } from '../../lib/ai/evaluate.ts'
import { edgeOf } from '../../lib/ai/graph.ts'
import { defaults, type NodeSpec } from '../../lib/ai/node-kinds.ts'
import { variablesOf } from '../../lib/ai/plan.ts'
import { programOf } from '../../lib/ai/programs.ts'
import type { Begun, Ended } from '../../lib/runner-protocol.ts'
import { callOneTool, requestByHttp } from './calls.ts'
import { answerIn, contentPointer, type Message, refusalOf, requestTo } from './llm.ts'
import { asWaiting, mapItems } from './maps.ts'
import { NodeFault, withoutQuotes } from './node-faults.ts'
import { toolTurns } from './tool-turns.ts'
import { jsonAt, type ModelCall, redactedNode, type RunnerWork } from './work.ts'

// What each kind of node does. The kinds that only evaluate expressions need nothing else.

type Of<K extends NodeSpec['kind']> = Extract<NodeSpec, { kind: K }>

/** One attempt of one node of a run. */
export interface Task {
  run: string
  name: string
  /** From 1 on. */
  attempt: number
  begun: Begun
  signal: AbortSignal
}

/** A node at work. */
interface Attempt extends Task {
  work: RunnerWork
  /** How the names of its calls begin, which are the same for each attempt. */
  calls: string
  /** The JSON of what is wanted. */
  evaluate(this: void, pointer: string, wanted: Wanted): Promise<string>
}

/** Carries out a node. Throws NodeFault. */
export const outcomeOf = (work: RunnerWork, task: Task): Promise<Ended> =>
  withoutQuotes(redactedNode(work, task.name) !== undefined, () => outcome(work, task))

async function outcome(work: RunnerWork, task: Task): Promise<Ended> {
  const { name, begun } = task
  const node = work.spec.nodes[name]
  if (!node) throw new NodeFault('not_found', `The version has no node ${name}`)
  const { plan, pool, key } = work
  const its = plan.nodes[name]
  const uses = [...new Set([...(its?.uses ?? []), ...(node.kind === 'merge' ? needsOf(node) : [])])]
  const variables = variablesOf(plan, uses)
  const attempt: Attempt = {
    ...task,
    work,
    calls: name,
    async evaluate(pointer, wanted) {
      const asked = { key: `${key} ${name}`, variables, wanted: { [pointer]: wanted }, given: begun.given }
      return jsonAt(pointer, await pool.evaluate(asked))
    },
  }
  const { when } = programOf(node)
  if (when && (await attempt.evaluate('/when', when)) !== 'true') return { status: 'skipped' }
  return carryOut(node, attempt)
}

const needsOf = (node: NodeSpec): string[] => (node.needs ?? []).map((need) => edgeOf(need).from)

async function carryOut(node: NodeSpec, attempt: Attempt): Promise<Ended> {
  switch (node.kind) {
    case 'template':
      return ended(await attempt.evaluate('/value', { value: node.value }))
    case 'switch':
      return choose(node, attempt)
    case 'merge':
      return merge(node, attempt)
    case 'llm':
      return askModel(node, attempt)
    case 'retrieve':
      return retrieve(node, attempt)
    case 'http':
      return ended(await requestByHttp(node, attempt))
    case 'tool':
      return ended(await callOneTool(node, attempt))
    case 'map':
      return mapItems(node, attempt, carryOut)
    case 'approve':
      return asWaiting({ message: await attempt.evaluate('/message', { text: messageOf(node, attempt) }) })
    case 'workflow':
      return asWaiting({}) // the run's workflow has callWorkflowOnRunner evaluate its input
    default:
      return node satisfies never
  }
}

/** Readers of the run see it. */
const messageOf = ({ message }: Of<'approve'>, { work, name }: Attempt): string =>
  redactedNode(work, name)?.message ?? message

const ended = (output: string): Ended => ({ status: 'succeeded', case: null, output })
const chose = (name: string): Ended => ({ status: 'succeeded', case: name, output: JSON.stringify(name) })

/** One case after the other: what follows the first that is true may have no value. */
async function choose({ cases, default: usual }: Of<'switch'>, { evaluate }: Attempt): Promise<Ended> {
  for (const [index, { name, when }] of cases.entries()) {
    if ((await evaluate(`/cases/${index}/when`, { expression: when })) === 'true') return chose(name)
  }
  if (usual === undefined) throw new NodeFault('no_case', 'No case is true, and there is no default')
  return chose(usual)
}

const outputOf = (name: string): string => `\${nodes.${name}.output}`

/** Takes the outputs of the needs that count: they succeeded and, of a switch, chose the case that is named. */
async function merge({ needs = [], take }: Of<'merge'>, { begun, evaluate }: Attempt): Promise<Ended> {
  const counting = needs.map(edgeOf).filter(({ from, if: condition }) => {
    const need = begun.nodes[from]
    if (need?.status !== 'succeeded') return false
    return typeof condition !== 'object' || condition.case === need.case
  })
  const names = [...new Set(counting.map(({ from }) => from))]
  const [first] = names
  if (first === undefined) throw new NodeFault('nothing_to_merge', 'None of its needs succeeded')
  const values = {
    first: outputOf(first),
    list: names.map(outputOf),
    object: Object.fromEntries(names.map((name) => [name, outputOf(name)])),
  }
  return ended(await evaluate('/take', { value: values[take] }))
}

/** The API searches, with the tenant's store and embedder, to which a runner has no way. */
async function retrieve(
  node: Of<'retrieve'>,
  { work, run, name, signal, evaluate }: Attempt,
): Promise<Ended> {
  const query = JSON.parse(await evaluate('/query', { text: node.query })) as string
  return ended(JSON.stringify(await work.api.retrieve(run, name, query, signal)))
}

/** One turn of a model, or several if it calls tools. Its last answer is JSON of the node's schema, if it has one. */
async function askModel(node: Of<'llm'>, its: Attempt): Promise<Ended> {
  const { work, run, name, attempt, calls, signal, evaluate } = its
  const { spec, api, callModel, tokens, pool, key } = work
  const model = spec.models?.[node.model]
  if (!model) throw new NodeFault('not_found', `The version has no model ${node.model}`)
  const messages: Message[] = []
  for (const [index, { role, content }] of node.messages.entries()) {
    const text = await evaluate(contentPointer(index), { text: content })
    messages.push({ role, content: JSON.parse(text) as string })
  }
  const { provider } = await api.modelGrant(run, node.model, signal)
  const schema = node.output_schema
  const { path, body } = requestTo(provider, model, messages, schema)
  const { tools, max_tool_rounds: mostRounds = defaults.max_tool_rounds } = node
  const turns = tools?.length
    ? await toolTurns(provider, { mostRounds, hasSchema: schema !== undefined }, its)
    : null
  const fitting = async (said: string): Promise<string> => {
    const output = answerIn(provider, said, schema)
    const fault =
      schema && (await pool.check({ key: `${key} ${name} /output_schema`, schema, given: output }))
    if (fault)
      throw new NodeFault('schema_mismatch', `${fault.pointer || 'The answer'} ${fault.message}`, {
        permanent: false,
      })
    return output
  }
  // A new attempt begins with the calls of those before it. Those that were answered cost nothing, since the gateway for models
  // has kept their answers; so each attempt adds at most one answer that does not fit, whether the one before was killed or not.
  for (let made = 0, unfit = 0; ; made++) {
    // Tools may have taken longer than a token lasts.
    const { token } = await api.modelGrant(run, node.model, signal)
    const call = { path, body: turns?.bodyOf(body) ?? body, token, key: `${calls}/${made}` }
    // Half a text can be read; half a JSON, or half a call of a tool, cannot.
    const onText = (text: string) => tokens.say(run, { node: name, attempt, call: made, text })
    const isSilent = schema || turns || redactedNode(work, name)
    const ask = (one: ModelCall) => callModel(one, signal, isSilent ? undefined : onText)
    let { status, said } = await ask(call)
    // The connector that the token names may be gone, and another one in its place.
    if (status === 401) {
      const other = await api.modelGrant(run, node.model, signal, token)
      ;({ status, said } = await ask({ ...call, token: other.token }))
    }
    if (status !== 200) throw refusalOf(status, said)
    if (await turns?.carriedOut(said)) continue
    try {
      return ended(await fitting(said))
    } catch (error) {
      const mayFit = error instanceof NodeFault && !error.permanent && ++unfit < attempt
      if (!mayFit) throw error
    }
  }
}
