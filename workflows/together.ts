/**
 * Waits for all of these, also if one fails: an undo must not overtake a step that still runs. Then throws the first
 * failure.
 */
export async function together(steps: Promise<unknown>[]): Promise<void> {
  const ends = await Promise.allSettled(steps)
  for (const end of ends) if (end.status === 'rejected') throw end.reason
}
