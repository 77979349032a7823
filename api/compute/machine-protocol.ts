import { z } from 'zod'
import { MachineTransfer } from '../../lib/host-protocol.ts'
import { NotFound } from '../../lib/problem.ts'
import { findInstance } from '../../models/compute/instance-kinds.ts'
import type { InstanceKind } from '../../models/compute/instances.ts'
import { type MachineDocument, noteMachineSource, openMachineSource } from '../../models/compute/machines.ts'
import { Reservation } from '../../models/compute/reservations.ts'
import { everyTenant } from '../../models/tenant-scope.ts'
import { Id } from '../fields.ts'
import { type HostCaller, hostsOnly, operation } from '../operation.ts'
import { own } from './host-protocol.ts'

// The internal API for machines that move between hosts.

const byInstance = z.strictObject({ id: Id, instance_id: Id })
const path = '/internal/v1/hosts/{id}/instances/{instance_id}/transfer'

/** The moving machine of which the caller is the source (`host_id`) or target host. Throws NotFound. */
async function moving(
  caller: HostCaller,
  { id, instance_id }: z.output<typeof byInstance>,
  end: 'host_id' | 'target_host_id',
): Promise<{ kind: InstanceKind; machine: MachineDocument }> {
  own(caller, id)
  const held = await Reservation.findOne({ _id: instance_id, [end]: id, target_host_id: { $ne: null } })
    .setOptions(everyTenant)
    .lean()
  const found = held && (await findInstance(instance_id))
  if (!found || found.kind.kind === 'container') throw new NotFound('move')
  return { kind: found.kind, machine: found.instance as MachineDocument }
}

export const machineProtocol = [
  operation({
    method: 'PUT',
    path,
    permission: hostsOnly('the source host says where it serves the machine, and with which key'),
    summary: 'Set the source of a machine that moves',
    params: byInstance,
    body: MachineTransfer,
    responses: { 204: null },
    handle: async ({ caller, params, body }) => {
      const { kind, machine } = await moving(caller, params, 'host_id')
      await noteMachineSource(kind, machine, body)
    },
  }),

  operation({
    method: 'GET',
    path,
    permission: hostsOnly('only the host that pulls the machine gets the key'),
    summary: 'Get the source of an incoming machine',
    params: byInstance,
    responses: { 200: MachineTransfer },
    handle: async ({ caller, params }) => {
      const { machine } = await moving(caller, params, 'target_host_id')
      if (machine.transfer_sealed === '-') throw new NotFound('transfer')
      return openMachineSource(machine)
    },
  }),
]
