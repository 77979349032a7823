import { proxyActivities, proxyLocalActivities } from '@temporalio/workflow'
import type { RagStoreActivities } from '../../activities/retrieval/stores.ts'
import { durable, type Work } from '../durable.ts'
import { remove } from '../remove.ts'
import { together } from '../together.ts'
import { removeSnapshots } from './snapshots.ts'
import { store } from './steps.ts'

const records = proxyLocalActivities<RagStoreActivities>({
  startToCloseTimeout: '10 s', // a few queries
  retry: { initialInterval: '100 ms', maximumInterval: '5 s' },
})

const { awaitRagStore } = proxyActivities<RagStoreActivities>({
  startToCloseTimeout: '5 minutes', // its own limit ends it before
  heartbeatTimeout: '10 s', // detects a killed worker soon
  retry: { initialInterval: '500 ms', maximumInterval: '10 s' },
})

const graceSec = 10

/** Makes what is missing of a store. A failure removes what it has made. */
async function make(work: Work<unknown>): Promise<{ status: string }> {
  const { id, carryOut, undo, progress } = work
  const { disk, container, mounted, ...there } = await records.planRagStore(id)
  for (const one of there.other_containers) await remove(work, 'container', one)
  progress('making its disk')
  undo(() => records.noteRagStore(id, { disk_id: there.disk_id }))
  const disk_id = there.disk_id ?? (await carryOut({ kind: 'disk' }, 'create', disk, { key: 'disk' }))
  await records.noteRagStore(id, { disk_id })
  progress('starting the store')
  undo(() => records.noteRagStore(id, { container_id: there.container_id }))
  const fields = { ...container, disks: [{ disk_id, ...mounted }] }
  const container_id =
    there.container_id ?? (await carryOut({ kind: 'container' }, 'create', fields, { key: 'container' }))
  await records.noteRagStore(id, { container_id })
  if (there.container_id !== null && !there.runs)
    await carryOut({ kind: 'container', id: container_id }, 'start', {}, { waitsForOthers: true })
  progress('waiting until the store answers')
  await awaitRagStore(id)
  return { status: 'ready' }
}

export const createRagStore = durable(make, { onFailure: 'error' })
/** Makes a store anew whose creation, rotation or deletion has failed. */
export const enableRagStore = durable(make, { onFailure: 'error' })

/** Gives a store a new token and certificate. It is away while its container restarts. */
export const rotateRagStore = durable(
  async ({ id, operation_id, carryOut, progress }) => {
    progress('making a new token and certificate')
    await records.renewStoreSecrets(id, operation_id)
    progress('restarting the store')
    const { container_id, runs } = await records.planRagStore(id)
    const its = { kind: 'container', id: container_id ?? '' }
    if (runs) await carryOut(its, 'stop', { grace_sec: graceSec }, { waitsForOthers: true })
    await carryOut(its, 'start', {}, { waitsForOthers: true })
    progress('waiting until the store answers')
    await awaitRagStore(id)
    return { status: 'ready' }
  },
  { final: true, onFailure: 'error' },
)

/** Takes a snapshot of the store's disk, and removes those beyond the number that is kept. */
export const snapshotRagStore = durable<{ name: string }>(async (work) => {
  const { id, input, carryOut, progress } = work
  const { disk_id } = await records.planRagStore(id)
  progress('taking the snapshot')
  const disk = { kind: 'disk', id: disk_id ?? '' }
  await carryOut(disk, 'snapshot', { name: input.name }, { waitsForOthers: true })
  progress('removing old snapshots')
  await removeSnapshots(work, await records.surplusRagSnapshots(id))
  await store.tidyRagStore(id)
  return { status: 'ready' }
})

/** Runs the store with this disk, in a new container. */
async function runWith(work: Work<unknown>, disk_id: string): Promise<void> {
  const { id, carryOut } = work
  for (const one of (await records.partsOfRagStore(id)).container) await remove(work, 'container', one)
  const { container, mounted } = await records.planRagStore(id)
  const fields = { ...container, disks: [{ disk_id, ...mounted }] }
  // What takes this back removes all containers of the store first.
  const container_id = await carryOut({ kind: 'container' }, 'create', fields, { undo: null })
  await records.noteRagStore(id, { container_id })
}

/**
 * Gives the store the content of a snapshot, on a disk of its own. Until the record names that, the store can go back to the
 * former disk, and nobody else uses it (models/retrieval/store-condition.ts). What the records have since is deleted before,
 * and indexed afterwards.
 */
export const restoreRagStore = durable<{ snapshot: string }>(async (work) => {
  const { id, operation_id, input, carryOut, undo, settle, progress } = work
  const { disk, disk_id } = await records.planRagStore(id)
  const former = disk_id ?? ''
  const { until } = await records.planRagRestore(id, input.snapshot)
  progress('copying the snapshot')
  const next = await carryOut({ kind: 'disk' }, 'create', {
    ...disk,
    name: `${disk.name}-${operation_id.slice(-8)}`,
    from_snapshot: { disk_id: former, name: input.snapshot },
  })
  progress('starting the store with it')
  undo(() => runWith(work, former))
  await runWith(work, next)
  progress('waiting until the store answers')
  await awaitRagStore(id)
  progress('deleting what was deleted since the snapshot')
  await store.deleteFromRagStore(id, until)
  await settle(() => records.noteRagRestored(id, operation_id, { disk_id: former, until }, next))
  await settle(async () => {
    progress('indexing what has changed since the snapshot')
    await store.reindexRagStore(id)
    progress('removing the former disk')
    for (const one of (await records.partsOfRagStore(id)).disk)
      if (one !== next) await remove(work, 'disk', one)
    await store.tidyRagStore(id)
  })
  return { status: 'ready' }
})

/** Deletes a store with its collections and documents. */
export const deleteRagStore = durable(
  async (work: Work<unknown>) => {
    const { id, progress } = work
    progress('ending the work on its collections and documents')
    await store.endRagWork({ store_id: id })
    progress('deleting its container and its disk')
    const { container, disk } = await records.partsOfRagStore(id)
    await together(container.map((one) => remove(work, 'container', one)))
    await together(disk.map((one) => remove(work, 'disk', one)))
    progress('removing the records of its collections and documents')
    await store.forgetRagPart({ store_id: id })
    return 'deleted'
  },
  { final: true, onFailure: 'error' },
)
