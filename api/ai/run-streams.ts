import { once } from 'node:events'
import type { ServerResponse } from 'node:http'
import { z } from 'zod'
import { NotFound } from '../../lib/problem.ts'
import { changesOf } from '../../models/ai/run-changes.ts'
import { nodesOf } from '../../models/ai/run-node-ends.ts'
import { type TokenPlace, tokensAfter } from '../../models/ai/run-tokens.ts'
import { type RunSummary, runSummaryOf } from '../../models/ai/runs.ts'
import { closed, Id } from '../fields.ts'
import { operation, stream } from '../operation.ts'
import { RunNodeView, RunSummaryView, toRunNode, toRunSummary } from './run-views.ts'
import { path } from './views.ts'

const TokenView = z
  .strictObject({
    node: z.string(),
    attempt: z.int().describe('The attempt; each attempt begins the text of its node again'),
    call: z.int().describe('The model call, counted from 0 in the attempt; each call has its own text'),
    text: z.string(),
  })
  .meta({ id: 'WorkflowRunToken' })

/** The HTTP operation that streams a run. */
export const aiRunStreams = [
  operation({
    method: 'GET',
    path: `${path}/{id}/runs/{run}/stream`,
    permission: 'workflows:read',
    summary: 'Follow a run as server-sent events: its state, its nodes, and the text of its models',
    params: z.strictObject({ id: Id, run: Id }),
    responses: {
      200: stream(
        'text/event-stream',
        z
          .union([RunSummaryView, RunNodeView, TokenView])
          .describe(
            'The data of an event: for `run` and `end` the run without its values, for `node` a node, for `token` a piece of text. A token has an id; with `Last-Event-ID`, the stream continues after it',
          ),
      ),
    },
    async handle({ caller, params, http: { request, response } }) {
      const run = await runSummaryOf(caller.tenant_id, params.id, params.run)
      await follow(run, placeOf(request.headers['last-event-id']), response)
    },
  }),
]

/** Anything else is the beginning. */
function placeOf(id: string | string[] | undefined): TokenPlace {
  const [, seq, index] = /^(\d{1,9})\.(\d{1,9})$/.exec(String(id)) ?? []
  return { seq: Number(seq ?? 0), index: Number(index ?? 0) }
}

// Proxies and browsers close a silent stream after a minute or so.
const keepAliveMs = 15_000
/** How long a client waits before it connects again. */
const againMs = 1_000

/** Sends what is kept of a run, and then what comes, until the run has ended or the client has left. */
async function follow(run: RunSummary, from: TokenPlace, response: ServerResponse): Promise<void> {
  const gone = closed(response)
  response.writeHead(200, {
    'Content-Type': 'text/event-stream',
    'Cache-Control': 'no-store',
    'X-Accel-Buffering': 'no',
  })
  response.write(`retry: ${againMs}\n\n`)
  const beat = setInterval(() => response.write(': still here\n\n'), keepAliveMs)
  try {
    for await (const text of eventsOf(run, from, gone)) {
      if (gone.aborted) return
      if (text && !response.write(text)) await once(response, 'drain', { signal: gone })
    }
    response.end()
  } catch (error) {
    if (!gone.aborted) throw error
  } finally {
    clearInterval(beat)
  }
}

/** The events of a run. Its state and its nodes are sent whenever they differ from what was sent last. */
async function* eventsOf(run: RunSummary, from: TokenPlace, gone: AbortSignal): AsyncGenerator<string> {
  const sent = new Map<string, string>()
  const news = (key: string, name: string, data: object): string => {
    const text = event(name, data)
    if (sent.get(key) === text) return ''
    sent.set(key, text)
    return text
  }
  let place = from
  for await (const { state } of changesOf(run._id, gone)) {
    // First the states, then the tokens: a runner sends all tokens of a node before its end.
    const now = state ? await stateOf(run) : null
    if (now === 'gone') return
    if (now) yield news('', 'run', toRunSummary(now.run))
    const nodes = (now?.nodes ?? []).map(toRunNode)
    yield nodes
      .filter(({ ended_at }) => ended_at === null)
      .map((node) => news(node.node, 'node', node))
      .join('')
    for (const { seq, index, node, attempt, call, text } of await tokensAfter(run, place)) {
      place = { seq, index }
      yield event('token', { node, attempt, call, text }, `${seq}.${index}`)
    }
    yield nodes
      .filter(({ ended_at }) => ended_at !== null)
      .map((node) => news(node.node, 'node', node))
      .join('')
    if (now && !now.run.open) {
      yield event('end', toRunSummary(now.run))
      return
    }
  }
}

/** The run, and then its nodes: those of a run that has ended have ended. */
async function stateOf({ _id, tenant_id, workflow_id }: RunSummary) {
  try {
    const run = await runSummaryOf(tenant_id, workflow_id, _id)
    return { run, nodes: await nodesOf(run) }
  } catch (error) {
    if (error instanceof NotFound) return 'gone'
    throw error
  }
}

const event = (name: string, data: object, id?: string): string =>
  `${id === undefined ? '' : `id: ${id}\n`}event: ${name}\ndata: ${JSON.stringify(data)}\n\n`
