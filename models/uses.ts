import { Problem } from '../lib/problem.ts'

// What uses a resource. The user declares this: it knows what it uses, and a resource does not know its users.

/** One resource that uses another. */
export interface Use {
  kind: string
  id: string
  name: string
}

type Find<D> = (used: D) => Promise<Omit<Use, 'kind'>[]>

const shown = 20

export class InUse extends Problem {
  constructor(title: string, uses: Use[]) {
    const named = uses.slice(0, shown).map(({ kind, name }) => `${kind} ${name}`)
    super(409, `${title}_in_use`, `The ${title} is in use`, `Used by ${named.join(', ')}`, {
      extensions: { uses: uses.slice(0, shown), count: uses.length },
    })
  }
}

/** The users of one kind of resource, whose documents are `D`. */
export function makeUsers<D>(title: string) {
  const users = new Map<string, Find<D>>()
  return {
    /**
     * Declares that resources of a kind use these. `find` returns those of the tenant that use this one; it runs in the
     * transaction of the deletion.
     */
    declare: (kind: string, find: Find<D>): void => void users.set(kind, find),

    /** Throws InUse. Call in the transaction of the deletion, after a write to the resource. */
    needNone: async (used: D): Promise<void> => {
      const all: Use[] = []
      for (const [kind, find] of users)
        for (const { id, name } of await find(used)) all.push({ kind, id, name })
      if (all.length) throw new InUse(title, all)
    },
  }
}
