/** What a model is called for: each has its own ledger. */
export const purposeKinds = ['session', 'run', 'member', 'document'] as const

export interface Purpose {
  kind: (typeof purposeKinds)[number]
  /** The id of the agent session, the workflow run, the team's member or the document. */
  id: string
}
