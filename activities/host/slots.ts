/** Runs `work` once a slot is free; rejects with the signal's reason when that aborts first. */
export type InSlot = <T>(work: () => Promise<T>, signal: AbortSignal) => Promise<T>

/** At most `width` at once; the others wait in line. */
export function makeSlots(width: number): InSlot {
  const line = new Set<() => void>()
  let free = width

  const slot = (signal: AbortSignal): Promise<void> =>
    new Promise((resolve, reject) => {
      const called = (): void => {
        signal.removeEventListener('abort', left)
        resolve()
      }
      const left = (): void => {
        line.delete(called)
        reject(signal.reason)
      }
      signal.addEventListener('abort', left)
      line.add(called)
    })

  return async (work, signal) => {
    signal.throwIfAborted()
    if (free > 0) free--
    else await slot(signal)
    try {
      return await work()
    } finally {
      const [next] = line
      if (next) {
        line.delete(next) // the slot passes on, without becoming free
        next()
      } else free++
    }
  }
}
