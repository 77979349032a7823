/** For each state at rest: which verb leads to which state on the way. */
type Table = Record<string, Record<string, string>>

export interface States<State extends string = string> {
  /** Every state, on the way or at rest. */
  all: [State, ...State[]]
  /** The states from which a verb is allowed. */
  from(verb: string): State[]
  /** The state while the verb is carried out. */
  during(verb: string): State
  /** Whether the verb may cut in on an operation that is under way. */
  supersedes(verb: string): boolean
  /** Whether an operation of this verb can be called off. */
  cancellable(verb: string): boolean
}

type StateOf<T extends Table> = (keyof T & string) | { [S in keyof T]: T[S][keyof T[S]] }[keyof T]

/**
 * A state machine as a table. The only place that knows what may follow what; all else asks it. `supersede`
 * names the verbs that do not wait for an open operation; `final` those that are not called off once begun.
 */
export function states<const T extends Table>(
  table: T,
  rules: { supersede?: string[]; final?: string[] } = {},
): States<StateOf<T>> {
  type State = StateOf<T>
  const rows = Object.entries(table) as [State, Record<string, State>][]
  const during = new Map<string, State>()
  for (const [state, verbs] of rows) {
    for (const [verb, to] of Object.entries(verbs)) {
      const other = during.get(verb)
      if (other && other !== to) throw new Error(`${verb} leads to ${other} and, from ${state}, to ${to}`)
      during.set(verb, to)
    }
  }
  const known = (verb: string): State => {
    const state = during.get(verb)
    if (!state) throw new Error(`no such verb: ${verb}`)
    return state
  }
  return {
    all: [...new Set([...rows.map(([state]) => state), ...during.values()])] as [State, ...State[]],
    from: (verb) => rows.filter(([, verbs]) => verb in verbs).map(([state]) => state),
    during: known,
    supersedes: (verb) => rules.supersede?.includes(verb) ?? false,
    cancellable: (verb) => !rules.final?.includes(verb),
  }
}
