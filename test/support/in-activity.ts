import { asyncLocalStorage } from '@temporalio/activity'

/** Runs what an activity would run, as this attempt of one. */
export const inActivity = <T>(work: () => Promise<T>, attempt = 1): Promise<T> =>
  asyncLocalStorage.run(
    { info: { attempt }, cancellationSignal: new AbortController().signal } as never,
    work,
  )
