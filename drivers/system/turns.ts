/** One call after another for each id. */
export function makeTurns(): <T>(id: string, work: () => Promise<T>) => Promise<T> {
  const last = new Map<string, Promise<unknown>>()
  return async (id, work) => {
    const before = last.get(id) ?? Promise.resolve()
    const mine = before.then(work, work)
    last.set(id, mine)
    try {
      return await mine
    } finally {
      if (last.get(id) === mine) last.delete(id)
    }
  }
}
