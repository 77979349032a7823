/** What a model is called for: each has its own ledger. */
export const purposeKinds = ['session', 'run', 'eval', 'member', 'document', 'collection'] as const

export interface Purpose {
  kind: (typeof purposeKinds)[number]
  /** The id of the agent session, the workflow run, the run of eval cases (for its judges), the team's member, the document, or the collection that is asked or embedded anew. */
  id: string
}
