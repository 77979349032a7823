/** Activities of a runner. Their names end in `OnRunner`. */
export const makeNodesOnRunner = () => ({
  /** Answers: the runner has its spec, polls its queue, and opens what is sealed for it. */
  async answerOnRunner(): Promise<void> {},
})

export type RunnerActivities = ReturnType<typeof makeNodesOnRunner>
