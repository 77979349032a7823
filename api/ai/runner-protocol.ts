import { z } from 'zod'
import { NodeName } from '../../lib/ai/fields.ts'
import { stepName } from '../../lib/ai/graph.ts'
import { CodecKeys } from '../../lib/host-protocol.ts'
import { InvalidInput, NotFound } from '../../lib/problem.ts'
import {
  Begun,
  Ended,
  Given,
  ModelGrant,
  outputBodyKib,
  tokensBodyKib,
  Passages,
  Retrieval,
  RunnerSpec,
  RunOutput,
  RunTokens,
  Turn,
  turnBodyKib,
  Turned,
} from '../../lib/runner-protocol.ts'
import { endAttempt } from '../../models/ai/node-ends.ts'
import { grantModel } from '../../models/ai/run-models.ts'
import { beginNode, giveOutput, givenForOutput } from '../../models/ai/run-nodes.ts'
import { retrieveForRun } from '../../models/ai/run-retrieval.ts'
import { keepTokens } from '../../models/ai/run-tokens.ts'
import { turnNode } from '../../models/ai/run-turns.ts'
import { runnerSpecOf } from '../../models/ai/runners.ts'
import { limits } from '../../models/retrieval/store-rules.ts'
import { byId, Id } from '../fields.ts'
import { type Operation, operation, type RunnerCaller, runnersOnly } from '../operation.ts'
import type { OperationsContext } from '../operations.ts'
import { noEmbeddings } from '../retrieval/collections.ts'

// The internal API of runners. A runner reaches what is its own; another runner's is not found.

/** Throws NotFound if `id` is another runner's. */
export const own = (caller: RunnerCaller, id: string): void => {
  if (caller.id !== id) throw new NotFound('runner')
}

const runs = '/internal/v1/runners/{id}/runs/{run}'
const ofRun = z.strictObject({ id: Id, run: Id })
const ofNode = z.strictObject({ id: Id, run: Id, node: z.string().regex(stepName) })
const attempt = z.strictObject({ attempt: z.coerce.number().int().min(1).max(1_000_000) })

const Query = z.string().trim().min(1).max(limits.queryText)
const noQuery = `must have 1 to ${limits.queryText} characters`

export const makeRunnerProtocol = ({
  codecKeysOf,
  embeddings = noEmbeddings,
}: Pick<OperationsContext, 'codecKeysOf' | 'embeddings'>): Operation[] => [
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

  operation({
    method: 'POST',
    path: `${runs}/nodes/{node}/begin`,
    permission: runnersOnly('a runner begins the nodes of its own runs'),
    summary: 'Begin an attempt of a node, and get the values that its expressions name',
    params: ofNode,
    query: attempt,
    responses: { 200: Begun },
    async handle({ caller, params, query }) {
      own(caller, params.id)
      return beginNode(caller, params.run, params.node, query.attempt)
    },
  }),

  operation({
    method: 'PUT',
    path: `${runs}/nodes/{node}/end`,
    permission: runnersOnly('a runner ends the nodes of its own runs'),
    summary: 'End a node with its output, skip it, or say what it waits for',
    params: ofNode,
    query: attempt,
    body: Ended,
    json_kib: outputBodyKib,
    responses: { 204: null },
    async handle({ caller, params, query, body }) {
      own(caller, params.id)
      await endAttempt(caller, params.run, params.node, query.attempt, body)
    },
  }),

  operation({
    method: 'POST',
    path: `${runs}/nodes/{node}/turn`,
    permission: runnersOnly('a runner ends the nodes of its own runs'),
    summary: 'End a node with its output, and begin what follows',
    params: ofNode,
    query: attempt,
    body: Turn,
    json_kib: turnBodyKib,
    responses: { 200: Turned },
    async handle({ caller, params, query, body }) {
      own(caller, params.id)
      return turnNode(caller, params.run, params.node, query.attempt, body)
    },
  }),

  operation({
    method: 'POST',
    path: `${runs}/nodes/{node}/retrieve`,
    permission: runnersOnly('a runner searches what its own version names'),
    summary: 'Search the collection of a node',
    params: ofNode,
    body: Retrieval,
    responses: { 200: Passages },
    async handle({ caller, params, body }) {
      own(caller, params.id)
      const query = Query.safeParse(body.query)
      if (!query.success) throw new InvalidInput(422, [{ pointer: '/query', message: noQuery }])
      return retrieveForRun(embeddings, caller, params.run, params.node, query.data)
    },
  }),

  operation({
    method: 'POST',
    path: `${runs}/models/{alias}/token`,
    permission: runnersOnly('a runner calls the models of its own version'),
    summary: 'Issue a token for calls of one of the version’s models',
    params: z.strictObject({ id: Id, run: Id, alias: NodeName }),
    responses: { 200: ModelGrant },
    async handle({ caller, params }) {
      own(caller, params.id)
      return grantModel(caller, params.run, params.alias)
    },
  }),

  operation({
    method: 'POST',
    path: `${runs}/tokens`,
    permission: runnersOnly('a runner tells what the models of its own runs say'),
    summary: 'Give pieces of text to those who watch a run',
    params: ofRun,
    body: RunTokens,
    json_kib: tokensBodyKib,
    responses: { 204: null },
    async handle({ caller, params, body }) {
      own(caller, params.id)
      await keepTokens(caller, params.run, body.tokens)
    },
  }),

  operation({
    method: 'GET',
    path: `${runs}/output`,
    permission: runnersOnly('a runner gets the values of its own runs'),
    summary: 'Get the values that the expressions of a run’s output name',
    params: ofRun,
    responses: { 200: Given },
    async handle({ caller, params }) {
      own(caller, params.id)
      return givenForOutput(caller, params.run)
    },
  }),

  operation({
    method: 'PUT',
    path: `${runs}/output`,
    permission: runnersOnly('a runner gives the outputs of its own runs'),
    summary: 'Give a run its output',
    params: ofRun,
    body: RunOutput,
    json_kib: outputBodyKib,
    responses: { 204: null },
    async handle({ caller, params, body }) {
      own(caller, params.id)
      await giveOutput(caller, params.run, body.output)
    },
  }),
]
