/** The layers of a push that is silent for longer may be removed: it then fails, and pushes them again when repeated. */
const silentMs = 5 * 60_000

interface Push {
  writing: number
  /** When it last wrote. */
  at: number
}

/**
 * Keeps pushes from outside and the collection of garbage in registries apart: the layers of a push that has not ended are
 * of no image yet, and would be removed.
 */
export function makePushGate(now = Date.now) {
  const pushes = new Map<string, Map<string, Push>>()
  const collections = new Map<string, Promise<unknown>>()

  const isOpen = ({ writing, at }: Push): boolean => writing > 0 || now() - at < silentMs

  return {
    /** A request that writes. It waits for a collection that is under way. With the last one, the push has ended. */
    async write<T>(
      machineId: string,
      { image, last }: { image: string; last: boolean },
      work: () => Promise<T>,
    ): Promise<T> {
      for (let one = collections.get(machineId); one; one = collections.get(machineId)) await one
      const its = pushes.get(machineId) ?? new Map<string, Push>()
      pushes.set(machineId, its)
      const push = its.get(image) ?? { writing: 0, at: now() }
      its.set(image, push)
      push.writing++
      try {
        return await work()
      } finally {
        push.writing--
        push.at = now()
        if (last && push.writing === 0) its.delete(image)
      }
    },

    /** False: a push is under way, and nothing was done. */
    async collect(machineId: string, work: () => Promise<void>): Promise<boolean> {
      const its = pushes.get(machineId) ?? new Map<string, Push>()
      for (const [image, push] of its) if (!isOpen(push)) its.delete(image)
      if (its.size) return false
      pushes.delete(machineId)
      const collecting = work()
      const over = collecting.catch(() => {})
      collections.set(machineId, over)
      try {
        await collecting
        return true
      } finally {
        collections.delete(machineId)
      }
    },
  }
}
