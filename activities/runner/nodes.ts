import { cancellationSignal, Context } from '@temporalio/activity'
import { variablesOf } from '../../lib/ai/plan.ts'
import type { Called } from '../../lib/runner-maps.ts'
import type { Ended, NodeAnswer } from '../../lib/runner-protocol.ts'
import { makeCaller } from './workflow-calls.ts'
import { outcomeOf } from './kinds.ts'
import { withoutQuotes } from './node-faults.ts'
import { jsonAt, type RunnerWork } from './work.ts'

/** Activities of a runner. Their names end in `OnRunner`. What goes through Temporal are ids, never values. */
export function makeNodesOnRunner(work: RunnerWork) {
  const callWorkflow = makeCaller(work)
  return {
    /** Answers: the runner has its spec, polls its queue, and opens what is sealed for it. */
    async answerOnRunner(): Promise<void> {},

    /** Carries out one attempt of a node, and records its output. */
    async runNodeOnRunner(run: string, node: string): Promise<NodeAnswer> {
      const { attempt } = Context.current().info
      const signal = cancellationSignal()
      const begun = await work.api.beginNode(run, node, attempt, signal)
      if (begun.done) return begun.done
      const end = await outcomeOf(work, { run, name: node, attempt, begun, signal })
      await work.tokens.sent(run) // they come before the node's end
      await work.api.endNode(run, node, attempt, end, signal)
      return answerOf(end)
    },

    /** Has another workflow run for a node, or for an item of a map. */
    callWorkflowOnRunner: (
      run: string,
      node: string,
      item: number | null,
      attempt: number,
    ): Promise<Called> => callWorkflow({ run, node, item, attempt }, cancellationSignal()),

    /** Records the run's output, made of what its nodes have left. */
    async giveOutputOnRunner(run: string): Promise<void> {
      const signal = cancellationSignal()
      const { given } = await work.api.givenForOutput(run, signal)
      const { pool, spec, plan, key } = work
      const variables = variablesOf(plan, plan.output.uses)
      const wanted = { '/output': { value: spec.output } }
      const isRedacted = (plan.redacted?.output ?? null) !== null
      const values = await withoutQuotes(isRedacted, () =>
        // No node has such a name.
        pool.evaluate({ key: `${key} /output`, variables, wanted, given }),
      )
      await work.api.giveOutput(run, jsonAt('/output', values), signal)
    },
  }
}

function answerOf(end: Ended): NodeAnswer {
  switch (end.status) {
    case 'succeeded':
      return { status: 'succeeded', case: end.case }
    case 'gathered':
      return { status: 'succeeded', case: null }
    case 'waiting':
      return { status: 'waiting', case: null, ...(end.items === null ? {} : { items: end.items }) }
    case 'skipped':
      return { status: 'skipped', case: null }
    default:
      return end satisfies never
  }
}

export type RunnerActivities = ReturnType<typeof makeNodesOnRunner>
