import PQueue from 'p-queue'

/** Work that has a name goes one after another with what has the same name; all else goes at once. */
export type InLine = <T>(name: string, work: () => Promise<T>) => Promise<T>

export function makeLines(): InLine {
  const lines = new Map<string, PQueue>()
  return async (name, work) => {
    const line = lines.get(name) ?? new PQueue({ concurrency: 1 })
    lines.set(name, line)
    try {
      return await line.add(work)
    } finally {
      if (line.size === 0 && line.pending === 0) lines.delete(name)
    }
  }
}
