import { askHttp, needHeaders, needSuccess, sentBody } from '../../lib/http-answers.ts'
import type { NodeSpec } from '../../lib/ai/node-kinds.ts'
import type { CallState, HttpCall } from '../../lib/runner-calls.ts'
import { outbound } from '../outbound.ts'
import { callOnce } from './run-calls.ts'
import type { RunnerOf } from './run-nodes.ts'
import { secondsOf, stepOfRun } from './run-steps.ts'

/** The request of an `http` node. Throws NotFound, and `attempt_over`. */
export async function callHttp(
  runner: RunnerOf,
  its: { run_id: string; node: string; attempt: number },
  { key, wait_ms, url, headers, body }: HttpCall,
): Promise<CallState> {
  const { step } = await stepOfRun(runner, its.node, 'http')
  const asked = ['http', key, step.method, url, headers, body]
  return callOnce(runner, { ...its, asked }, wait_ms, async (signal) => {
    const answer = await askHttp(outbound(), url, {
      ...requestOf(step, { headers, body, id: `${its.run_id}/${its.node}/${key}` }),
      withinMs: secondsOf(step) * 1000,
      signal,
    })
    needSuccess(answer)
    return { output: JSON.stringify(answer), is_error: false }
  })
}

type HttpStep = Pick<Extract<NodeSpec, { kind: 'http' }>, 'method'>

/** What is sent. Each attempt has the same Idempotency-Key, unless the author has set one. Throws CallFault. */
export function requestOf(
  { method }: HttpStep,
  { headers, body, id }: { headers: Record<string, string>; body: string | null; id: string },
) {
  needHeaders(headers)
  const sent = sentBody(body)
  const lower = Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]),
  )
  return {
    method,
    headers: {
      ...(sent ? { 'content-type': sent.type } : {}),
      ...(method === 'GET' ? {} : { 'idempotency-key': id }),
      ...lower,
    },
    ...(sent ? { body: sent.body } : {}),
  }
}
