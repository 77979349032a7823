import { mkdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import type { BindMount } from '../../drivers/containers.ts'
import type { Logger } from '../../lib/log.ts'
import { makeNamedQueues } from '../../lib/queue.ts'
import { type Door, openDoor, type Outside } from './door.ts'

// The doors of this host's runners, by their containers. A door is a folder that is mounted in the container: a host that
// starts again makes a new socket in it, and the container goes on.

/** Where a runner finds its door. */
export const doorFolder = '/run/keelson'

/** What the container of a runner gets of its host. */
export interface Doorway {
  mount: BindMount
  vars: Record<string, string>
}

export type Doors = ReturnType<typeof makeDoors>

interface Settings {
  /** A folder of the host, with a short path: the kernel limits that of a socket to 107 bytes. */
  run: string
  outside: Outside
  /** The Temporal namespace. */
  namespace: string
  log: Logger
}

interface Opened {
  runnerId: string
  door: Door
  /** The engine had its container. */
  seen: boolean
}

export function makeDoors({ run, outside, namespace, log }: Settings) {
  const doors = new Map<string, Opened>()
  /** Containers that are being started. */
  const held = new Map<string, number>()
  const inTurn = makeNamedQueues()

  const folderOf = (containerId: string): string => join(run, containerId)

  const open = (containerId: string, runnerId: string, seen: boolean): Promise<void> =>
    inTurn(containerId, async () => {
      const known = doors.get(containerId)
      if (known) known.seen = seen
      if (known?.runnerId === runnerId) return
      await known?.door.close()
      doors.delete(containerId)
      const door = await openDoor({ folder: folderOf(containerId), runnerId }, outside, log)
      doors.set(containerId, { runnerId, door, seen })
    })

  const remove = (containerId: string): Promise<void> =>
    inTurn(containerId, async () => {
      if (held.has(containerId)) return
      await doors.get(containerId)?.door.close()
      doors.delete(containerId)
      await rm(folderOf(containerId), { recursive: true, force: true })
    })

  return {
    /** Whether this host can have doors. */
    async ready(): Promise<boolean> {
      try {
        await mkdir(run, { recursive: true, mode: 0o700 }) // the machine's other users have their own ways out
        return true
      } catch (err) {
        log.warn(
          { err, folder: run },
          'this host takes no runners of AI workflows: it cannot make the folder',
        )
        return false
      }
    },

    /** Starts a container with its door open. What the engine is asked meanwhile may not show it. */
    async hold<T>(
      containerId: string,
      runnerId: string,
      start: (doorway: Doorway) => Promise<T>,
    ): Promise<T> {
      held.set(containerId, (held.get(containerId) ?? 0) + 1)
      try {
        await open(containerId, runnerId, false)
        return await start({
          mount: { host_path: folderOf(containerId), mount_path: doorFolder, read_only: true },
          vars: { KEELSON_GATEWAY_URL: outside.gatewayUrl, KEELSON_TEMPORAL_NAMESPACE: namespace },
        })
      } finally {
        const left = (held.get(containerId) ?? 1) - 1
        if (left) held.set(containerId, left)
        else held.delete(containerId)
      }
    },

    /** Removes the door of a container that was removed. Succeeds if there is none. */
    remove,

    /** Opens the doors of the runners that the engine has, and removes those of containers that it has no more. */
    async keep(found: { id: string; runner: string }[]): Promise<void> {
      const there = new Set(found.map(({ id }) => id))
      const gone = [...doors].flatMap(([id, { seen }]) =>
        seen && !there.has(id) && !held.has(id) ? [id] : [],
      )
      const opened = found.filter(({ id }) => !held.has(id)).map(({ id, runner }) => open(id, runner, true))
      for (const one of await Promise.allSettled([...gone.map(remove), ...opened]))
        if (one.status === 'rejected')
          log.warn(
            { err: one.reason as unknown },
            'the door of a runner is not in its wanted state; trying again',
          )
    },

    /** Runners live on: the next start of this host opens their doors again. */
    async close(): Promise<void> {
      const all = [...doors.values()]
      doors.clear()
      await Promise.allSettled(all.map(({ door }) => door.close()))
    },
  }
}
