import { proxyLocalActivities } from '@temporalio/workflow'
import type { InstanceActivities, Move, Placed } from '../../activities/compute/instances.ts'
import type { Outcome } from '../../activities/operations.ts'
import type { FoundContainer } from '../../drivers/containers.ts'
import type { InstanceKindName } from '../../lib/host-protocol.ts'
import { unbound } from '../../lib/ports.ts'
import { attachmentWorkflows } from '../deploy/attachments.ts'
import { durable, type Work } from '../durable.ts'
import { tellHosts } from '../network/hosts.ts'
import { moveDisk } from '../storage/moves.ts'
import { diskWorkflows } from './instance-disks.ts'
import { nicWorkflows, type Unplug } from './instance-nics.ts'
import { reached } from './ports.ts'

// The workflows that all kinds of instances share. `InstanceSteps` holds what differs.

const platform = proxyLocalActivities<InstanceActivities>({
  startToCloseTimeout: '10 s', // one or two queries
  retry: { initialInterval: '100 ms', maximumInterval: '5 s' },
})

type Spec = Placed['spec'] & { ports?: Parameters<typeof unbound>[0] }

/** A host's answer after it started an instance. */
interface Found extends Pick<FoundContainer, 'ports'> {
  state: string
  image_digest: string
  started_at: string | null
  exit_code: number | null
}

/** What differs between kinds of instances. */
export interface InstanceSteps<S extends Spec, F extends Found> {
  kind: InstanceKindName
  /** The kind's name in sentences, such as `container`. */
  title: string
  on: (hostId: string) => HostSteps<S, F>
  /** Builds the image on the host, for kinds whose images are built at first use. */
  makeImage?: (hostId: string, spec: S) => Promise<unknown>
  /** The fields that only this kind records after a start. `found` is null if the instance does not run. */
  fieldsOf?: (spec: S, found: F | null) => Record<string, unknown>
  unplugNic?: Unplug
}

/** The host's steps. Each is idempotent by the instance's id. */
interface HostSteps<S extends Spec, F extends Found> {
  pull: (image: string, digest: string | null, id: string) => Promise<{ image_digest: string }>
  run: (spec: S, operationId: string) => Promise<F>
  stop: (id: string, graceSec: number, diskIds: string[]) => Promise<number | null>
  /** Applies the changes that need no restart. */
  resize: (id: string, spec: Placed['spec']) => Promise<void>
  remove: (id: string, options?: { discard?: boolean; disk_ids?: string[] }) => Promise<void>
}

/** The workflows of one kind. The kind's file exports them as <verb><Kind>. */
export function instanceWorkflows<S extends Spec, F extends Found>(steps: InstanceSteps<S, F>) {
  const { kind, title, on: host, fieldsOf = () => ({}) } = steps
  // The cast holds: an instance is placed with the spec of its kind.
  const place = (id: string) => platform.placeInstance(kind, id) as Promise<Placed<S>>
  const placeElsewhere = (id: string, wanted: string | null, operationId: string) =>
    platform.placeInstanceElsewhere(kind, id, wanted, operationId) as Promise<Move<S>>

  async function bringUp({ id, operation_id, undo, progress }: Work<unknown>): Promise<Outcome> {
    // Report progress in parallel with placement: a write after it would delay the host's work.
    progress(
      steps.makeImage ? 'finding a host' : `finding a host, pulling the image and starting the ${title}`,
    )
    undo(() => platform.abandonPlacement(kind, id))
    const { host_id, host_address, spec, is_new, network_hosts } = await place(id)
    if (steps.makeImage) {
      progress('building the image, which takes minutes the first time on a host')
      await steps.makeImage(host_id, spec)
      progress(`starting the ${title}`)
    }

    // Undo keeps the files of an instance that was on this host before; a new one leaves nothing behind.
    const disk_ids = disksOf(spec)
    undo(() => (is_new ? host(host_id).remove(id, { disk_ids }) : host(host_id).stop(id, 0, disk_ids)))
    const [found] = await Promise.all([host(host_id).run(spec, operation_id), tellHosts(network_hosts)])
    return {
      // A short job may have ended already. Without an exit code it was killed: the host's next report starts a repair.
      ...(found.state === 'running' || found.exit_code === null
        ? { status: 'running' }
        : { status: 'stopped', desired_state: 'stopped' }),
      host_id,
      image_digest: found.image_digest,
      ...fieldsOf(spec, found),
      ...reached(spec, found, host_address),
      started_at: found.started_at,
      exit_code: found.exit_code,
      pending_changes: [],
    }
  }

  /** Applies the changes that need no restart. Returns the fields that wait for the next start. */
  async function applyLive({ id, input, undo }: Work<{ changes: Partial<S> }>): Promise<string[]> {
    const { host_id, spec, pending_changes } = await platform.runningInstance(
      kind,
      id,
      Object.keys(input.changes),
    )
    undo(() => host(host_id).resize(id, spec))
    await host(host_id).resize(id, { ...spec, ...input.changes })
    return pending_changes
  }

  return {
    create: durable<{ start: boolean }>(async (work) => {
      const { id, input, undo, progress } = work
      if (input.start) return bringUp(work)
      progress(steps.makeImage ? 'finding a host' : 'finding a host and pulling the image')
      undo(() => platform.abandonPlacement(kind, id))
      const { host_id, spec } = await place(id)
      if (steps.makeImage) return { status: 'stopped', host_id } // the first start builds the image
      const { image_digest } = await host(host_id).pull(spec.image, null, id)
      return { status: 'stopped', host_id, image_digest }
    }),

    start: durable(bringUp),

    /** Starts an instance whose desired state is running but that does not run. */
    repair: durable(bringUp, { onFailure: 'error' }),

    stop: durable<{ grace_sec: number }>(async ({ id, input, progress }) => {
      progress(`stopping the ${title}`)
      const { host_id, disk_ids } = await platform.placementOf(kind, id)
      const exit_code = host_id ? await host(host_id).stop(id, input.grace_sec, disk_ids) : null
      return { status: 'stopped', exit_code, runs_with: null }
    }),

    update: durable<{ changes: Partial<S> }>(async (work) => {
      const { id, input, before, undo } = work
      const { changes } = input
      // The API reserved the new size on acceptance. Undo reserves the recorded size, which is still the old one.
      undo(() => platform.reserveRecordedSize(kind, id))
      const pending_changes = before === 'running' ? await applyLive(work) : []
      return { ...changes, ...outdated(changes, before), status: before, pending_changes }
    }),

    /**
     * Moves the instance to another host. A running instance is stopped before it starts on the new host, so that it
     * never runs twice. A host that does not answer is skipped: it removes the instance when it is back.
     */
    reschedule: durable<{ host_id: string | null; grace_sec: number }>(async (work) => {
      const { id, operation_id, input, undo, progress, settle } = work
      progress('finding another host and pulling the image there')
      undo(() => platform.stayInstance(id, operation_id))
      const move = await placeElsewhere(id, input.host_id, operation_id)
      const { from_host_id: from, host_id, host_address, spec, runs, disks, network_hosts } = move
      const disk_ids = disksOf(spec)
      const { image_digest } = await host(host_id).pull(spec.image, spec.image_digest, id)
      if (from && runs) {
        progress('stopping it on its current host')
        undo(() => host(from).run(spec, operation_id))
        await host(from).stop(id, input.grace_sec, disk_ids)
      }
      for (const disk of from ? disks : [])
        await moveDisk(work, { ...disk, from: from ?? '', to: host_id }, { bandwidth_mib_per_sec: null })
      await tellHosts(network_hosts) // also cuts off a former host that does not answer
      progress(runs ? 'starting it on its new host' : 'placing it on its new host')
      undo(() => host(host_id).remove(id, { disk_ids }))
      await host(host_id).remove(id) // left over from an earlier placement there
      const found = runs ? await host(host_id).run({ ...spec, image_digest }, operation_id) : null
      await settle(() => platform.arriveInstance(id, operation_id))
      await tellHosts(network_hosts)
      return {
        status: found?.state === 'running' ? 'running' : 'stopped',
        ...(found && found.state !== 'running' ? { desired_state: 'stopped' } : {}),
        wanted_host_id: input.host_id,
        host_id,
        image_digest,
        ...fieldsOf(spec, found),
        ...reached(spec, found, host_address),
        started_at: found?.started_at ?? null,
        exit_code: found?.exit_code ?? null,
        pending_changes: [],
      }
    }),

    delete: durable(
      async ({ id, progress }) => {
        progress(`removing the ${title}`)
        const { host_id, disk_ids, network_hosts } = await platform.placementOf(kind, id)
        if (host_id) await host(host_id).remove(id, { discard: true, disk_ids })
        await platform.releaseInstance(kind, id)
        await tellHosts(network_hosts)
        return 'deleted'
      },
      { final: true },
    ),

    ...diskWorkflows(kind),
    ...nicWorkflows(steps.unplugNic),
    ...attachmentWorkflows,
  }
}

const disksOf = ({ disks }: Spec): string[] => disks.map(({ disk_id }) => disk_id)

/** Resets the fields that described the former image or ports. */
const outdated = ({ image, ports }: Partial<Spec>, before: string) => ({
  ...(image ? { image_digest: null } : {}),
  ...(ports && before !== 'running' ? { bindings: unbound(ports) } : {}),
})
