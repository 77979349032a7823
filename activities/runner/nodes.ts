import { cancellationSignal, Context } from '@temporalio/activity'
import { variablesOf } from '../../lib/ai/plan.ts'
import type { NodeEnd } from '../../lib/runner-protocol.ts'
import { outcomeOf } from './kinds.ts'
import { withoutNoValue } from './node-faults.ts'
import { jsonAt, type RunnerWork } from './work.ts'

/** Activities of a runner. Their names end in `OnRunner`. What goes through Temporal are ids, never values. */
export const makeNodesOnRunner = (work: RunnerWork) => ({
  /** Answers: the runner has its spec, polls its queue, and opens what is sealed for it. */
  async answerOnRunner(): Promise<void> {},

  /** Carries out one attempt of a node, and records its output. */
  async runNodeOnRunner(run: string, node: string): Promise<NodeEnd> {
    const { attempt } = Context.current().info
    const signal = cancellationSignal()
    const begun = await work.api.beginNode(run, node, attempt, signal)
    if (begun.done) return begun.done
    const end = await withoutNoValue(() => outcomeOf(work, { run, name: node, attempt, begun, signal }))
    await work.tokens.sent(run) // they come before the node's end
    await work.api.endNode(run, node, attempt, end, signal)
    return { status: end.status, case: end.status === 'succeeded' ? end.case : null }
  },

  /** Records the run's output, made of what its nodes have left. */
  async giveOutputOnRunner(run: string): Promise<void> {
    const signal = cancellationSignal()
    const { given } = await work.api.givenForOutput(run, signal)
    const { pool, spec, plan, key } = work
    const variables = variablesOf(plan, plan.output.uses)
    const wanted = { '/output': { value: spec.output } }
    const values = await withoutNoValue(() =>
      // No node has such a name.
      pool.evaluate({ key: `${key} /output`, variables, wanted, given }),
    )
    await work.api.giveOutput(run, jsonAt('/output', values), signal)
  },
})

export type RunnerActivities = ReturnType<typeof makeNodesOnRunner>
