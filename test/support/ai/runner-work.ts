import type { RunApi, Tokens } from '../../../activities/runner/work.ts'

export const never = (): never => {
  throw new Error('nothing is asked here')
}

/** The internal API of a runner whose nodes ask nothing. */
export const noApi: RunApi = {
  beginNode: never,
  endNode: never,
  turnNode: never,
  givenForOutput: never,
  giveOutput: never,
  modelGrant: never,
  retrieve: never,
  callHttp: never,
  callTool: never,
  offeredTools: never,
  openItems: never,
  endItems: never,
  givenForNode: never,
  callWorkflow: never,
}

/** Nobody watches the runs. */
export const noTokens: Tokens = { say: () => {}, sent: async () => {}, take: async () => [] }
