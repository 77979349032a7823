// What goes on until it is told to stop must end with its file of tests, even if a test failed before it told so: it would
// disturb the files after it, and keep the run from ending.

const ends = new Set<() => unknown>()

/** Has `end` called at the end of this file of tests. */
export const atEndOfFile = (end: () => unknown): void => {
  ends.add(end)
}

/** Ends all that was told to `atEndOfFile`, at the same time. test/support/each-file.ts calls it. */
export async function endOfFile(): Promise<void> {
  await Promise.all([...ends].map((end) => end()))
  ends.clear()
}
