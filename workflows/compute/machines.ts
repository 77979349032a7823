import { ApplicationFailure, proxyLocalActivities } from '@temporalio/workflow'
import type { InstanceActivities, Move, Placed, Specs } from '../../activities/compute/instances.ts'
import type { MachineActivities } from '../../activities/compute/machines.ts'
import type { Outcome } from '../../activities/operations.ts'
import type { FoundMachine, MachineKind } from '../../drivers/machines.ts'
import { durable, type Work } from '../durable.ts'
import { on } from '../hosts.ts'
import { tellHosts } from '../network/hosts.ts'
import { moveDisk, moveMachine } from '../storage/moves.ts'
import { instanceWorkflows } from './instances.ts'
import { reached } from './ports.ts'

// The workflows of microVMs and VMs: the shared ones, and those that containers lack.

const moveTries = 3

const platform = proxyLocalActivities<InstanceActivities & MachineActivities>({
  startToCloseTimeout: '10 s', // one or two queries
  retry: { initialInterval: '100 ms', maximumInterval: '5 s' },
})
type Spec = Specs[MachineKind]

/** The workflows of one kind. The kind's file exports them as <verb><Kind>. */
export function machineWorkflows(kind: MachineKind, title: string) {
  // The cast holds: an instance is placed with the spec of its kind.
  const place = (id: string) => platform.placeInstance(kind, id) as Promise<Placed<Spec>>
  const placeElsewhere = (id: string, wanted: string | null, operationId: string) =>
    platform.placeInstanceElsewhere(kind, id, wanted, operationId) as Promise<Move<Spec>>

  const common = instanceWorkflows<Spec, FoundMachine>({
    kind,
    title,
    on(hostId) {
      const host = on(hostId)
      return {
        pull: (image, digest, id) => host.prepareMachineOnHost(kind, image, digest, id),
        run: host.runMachineOnHost,
        stop: host.stopMachineOnHost,
        resize: host.resizeMachineOnHost,
        remove: host.removeMachineOnHost,
      }
    },
    ...(kind === 'vm'
      ? {
          makeImage: (hostId: string, { id, image, image_digest }: Spec) =>
            on(hostId).prepareMachineOnHost(kind, image, image_digest, id),
        }
      : {}),
    fieldsOf: (spec, found) => ({ runs_with: found ? sizeIn(spec) : null }),
    unplugNic: (hostId, id, nicId) => on(hostId).unplugNicOnHost(id, nicId),
  })

  return {
    ...common,

    reboot: durable<{ grace_sec: number }>(async ({ id, operation_id, input, progress }) => {
      progress(`restarting the ${title}`)
      const { host_id, host_address, spec } = await place(id)
      const found = await on(host_id).rebootMachineOnHost(spec, operation_id, input.grace_sec)
      const now = { runs_with: sizeIn(spec), ...reached(spec, found, host_address) }
      return { status: 'running', ...asFound(found), ...now, pending_changes: [] }
    }),

    /** If the suspend activity fails, ask QEMU: the machine may be suspended. */
    suspend: durable(
      async ({ id, progress }) => {
        progress('saving its memory to a file')
        const { host_id } = await place(id)
        try {
          await on(host_id).suspendMachineOnHost(id)
        } catch (error) {
          if ((await on(host_id).findMachineOnHost(id))?.state !== 'suspended') throw error
        }
        return { status: 'suspended' }
      },
      { final: true },
    ),

    resume: durable(
      async (work) => {
        const { id, operation_id, progress } = work
        progress('loading its memory from the file')
        const placed = await place(id)
        const { host_id, host_address, spec } = placed.lacks_room ? await goWhereRoomIs(work) : placed
        const found = await resumed(host_id, spec, operation_id)
        return { status: 'running', host_id, ...reached(spec, found, host_address) }
      },
      { final: true },
    ),

    /** Creates a machine from a suspended one's memory. This operation holds the source until the copy is complete. */
    fork: durable<{ from: string }>(async ({ id, operation_id, input: { from }, undo, settle, progress }) => {
      progress(`copying the suspended ${title}`)
      undo(() => platform.letSourceGo(kind, from, operation_id))
      undo(() => platform.abandonPlacement(kind, id))
      const { host_id, host_address, spec, network_hosts } = await place(id)
      undo(() => on(host_id).removeMachineOnHost(id))
      const [found] = await Promise.all([
        on(host_id).forkMachineOnHost(from, spec, operation_id),
        tellHosts(network_hosts),
      ])
      await settle(() => platform.letSourceGo(kind, from, operation_id))
      const now = { runs_with: sizeIn(spec), ...reached(spec, found, host_address) }
      return { status: 'running', host_id, ...asFound(found), ...now }
    }),

    /**
     * Moves the machine and its root disk to another host. A running machine is suspended, copied and resumed there.
     * Until the record names the new host, the source's copy is authoritative.
     */
    reschedule: durable<{ host_id: string | null }>(async (work) => {
      const { id, operation_id, input, undo, progress, settle } = work
      progress('finding another host')
      undo(() => platform.stayInstance(id, operation_id))
      const move = await placeElsewhere(id, input.host_id, operation_id)
      const { from_host_id, host_id, host_address, spec, runs, network_hosts } = move
      const from = from_host_id ?? '' // never '': without a host that answers, placement fails
      if (runs) {
        progress('saving its memory to a file')
        undo(() => goBack(work, from, spec))
        await on(from).suspendMachineOnHost(id)
      }
      await copyOver(work, { ...move, from })
      progress('placing it on its new host')
      await settle(() => platform.arriveInstance(id, operation_id))
      await tellHosts([...network_hosts, from])
      const unreached = reached(spec, null, host_address)
      const moved = { wanted_host_id: input.host_id, host_id, transfer_sealed: '-', ...unreached }
      return runs ? goOn(work, move, moved) : { ...moved, status: work.before }
    }),
  }

  /** Copies the machine and its disks to another host. The source is unchanged. */
  async function copyOver(
    work: Pick<Work<unknown>, 'id' | 'undo' | 'progress'>,
    { from, host_id, disks }: Pick<Move, 'host_id' | 'disks'> & { from: string },
  ): Promise<void> {
    const { id, undo } = work
    undo(() => on(host_id).removeMachineOnHost(id))
    await moveMachine(work, { id, name: title, from, to: host_id })
    for (const disk of disks)
      await moveDisk(work, { ...disk, from, to: host_id }, { bandwidth_mib_per_sec: null })
  }

  /**
   * Moves a suspended machine to a host with room to run it. The room is reserved only after the copy: if other
   * instances have taken it by then, the machine moves on to another host.
   */
  async function goWhereRoomIs({ id, operation_id, ...work }: Work<unknown>): Promise<Move<Spec>> {
    for (let tries = 0; tries < moveTries; tries++) {
      work.progress('its host is full; finding another host')
      work.undo(() => platform.stayInstance(id, operation_id))
      const move = await placeElsewhere(id, null, operation_id)
      const from = move.from_host_id ?? '' // never '': without a host that answers, placement fails
      await copyOver({ id, ...work }, { ...move, from })
      work.progress('placing it on its new host')
      await work.settle(() => platform.landMachine(kind, id, operation_id))
      await tellHosts([...move.network_hosts, from])
      if (await platform.takeRoomToRun(kind, id)) return move
    }
    throw ApplicationFailure.nonRetryable('Each host to which it moved was full by then', 'no_capacity')
  }

  /** If the resume activity fails, ask QEMU: the machine may be running. */
  async function resumed(hostId: string, spec: Spec, operationId: string): Promise<FoundMachine> {
    try {
      return await on(hostId).resumeMachineOnHost(spec, operationId)
    } catch (error) {
      const found = await on(hostId).findMachineOnHost(spec.id)
      if (found?.state !== 'running') throw error
      return found
    }
  }

  /** Resumes the machine on its former host. If it has ended meanwhile, a repair starts it. */
  async function goBack({ id, operation_id }: Work<unknown>, from: string, spec: Spec): Promise<void> {
    try {
      await on(from).resumeMachineOnHost(spec, operation_id)
    } catch (error) {
      if ((await on(from).findMachineOnHost(id))?.state === 'suspended') throw error
    }
  }

  /** Resumes the machine on its new host. If that fails it stays suspended; if it ran and ended, a repair starts it. */
  async function goOn(
    { id, operation_id, progress }: Work<unknown>,
    { host_id, host_address, spec }: Pick<Move<Spec>, 'host_id' | 'host_address' | 'spec'>,
    moved: object,
  ): Promise<Outcome> {
    progress('loading its memory from the file')
    try {
      const found = await resumed(host_id, spec, operation_id)
      return { ...moved, status: 'running', ...reached(spec, found, host_address) }
    } catch {
      if ((await on(host_id).findMachineOnHost(id))?.state === 'suspended') {
        const status_reason = 'It was moved but could not be resumed there: resume it, or stop and start it'
        return { ...moved, status: 'suspended', desired_state: 'suspended', status_reason }
      }
    }
    return { ...moved, status: 'running' }
  }
}

const sizeIn = ({ cpu_cores, memory_mib }: Spec) => ({ cpu_cores, memory_mib })

const asFound = ({ image_digest, started_at, exit_code }: FoundMachine) => ({
  image_digest,
  started_at,
  exit_code,
})
