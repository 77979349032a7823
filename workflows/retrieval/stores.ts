import { proxyActivities, proxyLocalActivities } from '@temporalio/workflow'
import type { RagStoreActivities } from '../../activities/retrieval/stores.ts'
import { durable, type Work } from '../durable.ts'
import { remove } from '../remove.ts'
import { together } from '../together.ts'
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
async function make({ id, carryOut, undo, progress }: Work<unknown>): Promise<{ status: string }> {
  const { disk, container, mounted, ...there } = await records.planRagStore(id)
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
    progress('forgetting its collections and documents')
    await store.forgetRagPart({ store_id: id })
    return 'deleted'
  },
  { final: true, onFailure: 'error' },
)
