import { CodecKeys } from '../../lib/host-protocol.ts'
import { NotFound } from '../../lib/problem.ts'
import { RunnerSpec } from '../../lib/runner-protocol.ts'
import { runnerSpecOf } from '../../models/ai/runners.ts'
import { byId } from '../fields.ts'
import { type Operation, operation, type RunnerCaller, runnersOnly } from '../operation.ts'
import type { OperationsContext } from '../operations.ts'

// The internal API of runners. A runner reaches what is its own; another runner's is not found.

/** Throws NotFound if `id` is another runner's. */
export const own = (caller: RunnerCaller, id: string): void => {
  if (caller.id !== id) throw new NotFound('runner')
}

export const makeRunnerProtocol = ({ codecKeysOf }: Pick<OperationsContext, 'codecKeysOf'>): Operation[] => [
  operation({
    method: 'GET',
    path: '/internal/v1/runners/{id}/codec-keys',
    permission: runnersOnly('a runner gets the keys of its own payloads'),
    summary: 'Get the keys that seal the payloads of a runner’s tasks',
    params: byId,
    responses: { 200: CodecKeys },
    handle: async ({ caller, params }) => {
      own(caller, params.id)
      if (!codecKeysOf) throw new NotFound('codec keys')
      return { keys: codecKeysOf({ kind: caller.kind, id: caller.id }) }
    },
  }),

  operation({
    method: 'GET',
    path: '/internal/v1/runners/{id}/spec',
    permission: runnersOnly('a runner gets the version that it carries out'),
    summary: 'Get the spec of a runner’s version, and the plan of its validation',
    params: byId,
    responses: { 200: RunnerSpec },
    handle: async ({ caller, params }) => {
      own(caller, params.id)
      return runnerSpecOf(caller)
    },
  }),
]
