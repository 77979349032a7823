import { setTimeout as sleep } from 'node:timers/promises'
import { Agent, request } from 'undici'
import { judgeMessages, judgementSchema } from '../../lib/ai/judging.ts'
import { Problem } from '../../lib/problem.ts'
import { callKeyHeader } from '../../lib/runner-protocol.ts'
import type { Judge } from '../../models/ai/judges.ts'
import { answerIn, refusalOf, requestTo } from '../runner/llm.ts'
import { NodeFault } from '../runner/node-faults.ts'

// A judge is a model, called through the gateway for models as a node of a run calls it.

export interface JudgeAsked {
  /** Names the call: the gateway has the answer if it was made before. */
  key: string
  rubric: string
  input: unknown
  output: unknown
}

/** The judge's answer. Rejects with NodeFault if there is none, and with the signal's reason. */
export type AskJudge = (
  judge: () => Promise<Judge>,
  asked: JudgeAsked,
  signal: AbortSignal,
) => Promise<string>

/** As an attempt of a node of kind `llm` takes at most, by default. */
const withinMs = 120_000
const mostAnswerBytes = 8 * 1024 ** 2
/** The pauses before the gateway is asked again that did not answer: it may be restarting. */
const pausesMs = [500, 1_000, 2_000, 4_000, 8_000, 16_000]

/** `url`: of the gateway for models. */
export function openJudge(url: string, pauses = pausesMs): AskJudge {
  const agent = new Agent({ maxResponseSize: mostAnswerBytes })
  const gateway = url.replace(/\/+$/, '')

  async function once(judge: Judge, { key, ...asked }: JudgeAsked, signal: AbortSignal): Promise<string> {
    const { model, provider, token } = judge
    const schema = judgementSchema()
    const { path, body } = requestTo(provider, model, judgeMessages(asked), schema)
    const { statusCode, body: answer } = await request(`${gateway}${path}`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${token}`,
        'content-type': 'application/json',
        [callKeyHeader]: key,
      },
      body: JSON.stringify(body),
      dispatcher: agent,
      signal: AbortSignal.any([signal, AbortSignal.timeout(withinMs)]),
    })
    const said = await answer.text()
    if (statusCode !== 200) throw refusalOf(statusCode, said)
    return answerIn(provider, said, schema)
  }

  return async (judge, asked, signal) => {
    for (let attempt = 0; ; attempt++) {
      const its = await judge().catch((error: unknown) => {
        throw error instanceof Problem ? new NodeFault(error.code, error.message, { cause: error }) : error
      })
      try {
        return await once(its, asked, signal)
      } catch (error) {
        signal.throwIfAborted()
        if (error instanceof NodeFault) throw error
        if (error instanceof DOMException && error.name === 'TimeoutError')
          throw new NodeFault('timed_out', `The judge took longer than ${withinMs / 1000} s`, {
            cause: error,
          })
        const pause = pauses[attempt]
        if (pause === undefined)
          throw new NodeFault('model_unavailable', 'The gateway for models does not answer', { cause: error })
        await sleep(pause, undefined, { signal })
      }
    }
  }
}
