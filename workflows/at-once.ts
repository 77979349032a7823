/** Runs `work` on every thing, `many` at a time. If one fails, the error is thrown after all started work has ended. */
export async function atOnce<T>(many: number, things: T[], work: (thing: T) => Promise<void>): Promise<void> {
  const left = things.values()
  const lane = async (): Promise<void> => {
    for (const thing of left) await work(thing)
  }
  const ends = await Promise.allSettled(Array.from({ length: many }, lane))
  for (const end of ends) if (end.status === 'rejected') throw end.reason
}
