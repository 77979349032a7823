/** For each state at rest: the allowed verbs, each with the state while it is carried out. */
type Table = Record<string, Record<string, string>>

// Methods, not function fields: method parameters are bivariant, so the states of any resource fit `States`.
export interface States<State extends string = string, Verb extends string = string> {
  /** Every state, at rest or in transition. */
  all: [State, ...State[]]
  verbs: string[]
  /** The states from which a verb is allowed. */
  from(verb: Verb): State[]
  /** The state while the verb is carried out. */
  during(verb: Verb): State
  /** Whether the verb may supersede an open operation. */
  supersedes(verb: Verb): boolean
  /** Whether an operation of this verb can be cancelled. */
  cancellable(verb: Verb): boolean
}

/** The states of a table made by `states`: `StateOf<typeof diskStates>`. */
export type StateOf<S extends States> = S['all'][number]

type StateIn<T extends Table> = (keyof T & string) | { [S in keyof T]: T[S][keyof T[S]] }[keyof T]
type VerbIn<T extends Table> = { [S in keyof T]: keyof T[S] & string }[keyof T]

/**
 * A state machine as a table: the only place that defines the transitions. `supersede` lists the verbs that do not wait
 * for an open operation; `final` those whose operations cannot be cancelled.
 */
export function states<const T extends Table>(
  table: T,
  rules: { supersede?: VerbIn<T>[]; final?: VerbIn<T>[] } = {},
): States<StateIn<T>, VerbIn<T>> {
  type State = StateIn<T>
  const rows = Object.entries(table) as [State, Record<string, State>][]
  const during = new Map<string, State>()
  for (const [state, verbs] of rows) {
    for (const [verb, to] of Object.entries(verbs)) {
      const other = during.get(verb)
      if (other && other !== to) throw new Error(`${verb} leads to ${other} and, from ${state}, to ${to}`)
      during.set(verb, to)
    }
  }
  return {
    all: [...new Set([...rows.map(([state]) => state), ...during.values()])] as [State, ...State[]],
    verbs: [...during.keys()],
    from: (verb) => rows.filter(([, verbs]) => verb in verbs).map(([state]) => state),
    during(verb) {
      const state = during.get(verb)
      if (!state) throw new Error(`no such verb: ${verb}`)
      return state
    },
    supersedes: (verb) => rules.supersede?.includes(verb) ?? false,
    cancellable: (verb) => !rules.final?.includes(verb),
  }
}
