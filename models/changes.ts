import { setTimeout } from 'node:timers/promises'
import mongoose from 'mongoose'
import type { Logger } from '../lib/log.ts'

// What MongoDB says of changes, by any process. One change stream for all: each one reads the whole oplog, and three took 2 ms of
// MongoDB's CPU time for each operation.

interface Watched {
  collection: { name: string }
}

interface Listener {
  collection: string
  /** A filter of change events. */
  only: object
  isMeant: (change: Seen) => boolean
  hear: (id: string) => void
}

interface Seen {
  documentKey: { _id: string }
  ns: { coll: string }
  updateDescription?: { removedFields: string[] }
}

const listeners: Listener[] = []

/** `hear` is called with the id of each document that has changed, or is new or gone, while `watchChanges` runs. */
export function onChange({ collection }: Watched, hear: (id: string) => void): void {
  listeners.push({ collection: collection.name, only: {}, isMeant: () => true, hear })
}

/** `hear` is called with the id of each document that loses this field, while `watchChanges` runs. */
export function onFieldRemoved({ collection }: Watched, field: string, hear: (id: string) => void): void {
  listeners.push({
    collection: collection.name,
    only: { operationType: 'update', 'updateDescription.removedFields': field },
    isMeant: ({ updateDescription }) => updateDescription?.removedFields.includes(field) ?? false,
    hear,
  })
}

/** Watches for all listeners that there are by now, until aborted. Changes are missed while the stream is interrupted. */
export async function watchChanges(log: Logger, signal: AbortSignal): Promise<void> {
  const { db } = mongoose.connection
  if (!db) throw new Error('connectDatabase was not called')
  const meant = listeners.map(({ collection, only }) => ({ 'ns.coll': collection, ...only }))
  const seen = { documentKey: 1, ns: 1, 'updateDescription.removedFields': 1 }
  while (!signal.aborted) {
    const changes = db.watch([{ $match: { $or: meant } }, { $project: seen }])
    const close = () => void changes.close()
    signal.addEventListener('abort', close, { once: true })
    try {
      for await (const change of changes) if ('documentKey' in change) tell(change as unknown as Seen)
    } catch (error) {
      if (signal.aborted) return
      log.warn({ err: error }, 'the change stream broke; opening another')
      await setTimeout(500, undefined, { signal }).catch(() => undefined)
    } finally {
      signal.removeEventListener('abort', close)
      await changes.close()
    }
  }
}

function tell(change: Seen): void {
  for (const { collection, isMeant, hear } of listeners)
    if (change.ns.coll === collection && isMeant(change)) hear(change.documentKey._id)
}
