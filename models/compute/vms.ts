import { Problem } from '../../lib/problem.ts'
import { accepts, begin, type By, create } from '../acceptance.ts'
import { needQuota } from '../identity/tenants.ts'
import { Nic } from '../network/nics.ts'
import { vpcResource } from '../network/vpcs.ts'
import type { Accepted } from '../operations.ts'
import { lockParent } from '../parents.ts'
import { keptBy } from '../resources.ts'
import { sealedField } from '../sealed-fields.ts'
import { sealSecret, unsealSecret } from '../secrets.ts'
import { type Changes, newborn, takeForNew } from './instance-acceptance.ts'
import {
  defineMachine,
  type MachineDocument,
  machineStates,
  machineVerbs,
  mustNotShrink,
  type NewMachine,
} from './machines.ts'
import { resize } from './reservations.ts'

/** The images for VMs that the engine offers, with titles for tenants. */
export const vmImages = [{ name: 'debian-12', title: 'Debian 12, with cloud-init' }] as const

/** The image of VMs that are machines of deploy servers. No tenant can ask for it. */
export const deployMachineImage = 'machine'

/** A machine with a full operating system, set up by cloud-init. */
export interface VmDocument extends MachineDocument {
  /** Lines for `authorized_keys`. */
  ssh_keys: string[]
  /** User data for cloud-init. It may contain passwords, so it is sealed (`sealUserData`); `-` for none. */
  user_data_sealed: string
  /** The VPC of its NICs, whose quota it counts against. Null for a VM that never had a NIC nor a requested VPC. */
  vpc_id: string | null
}

export const vmKind = defineMachine<VmDocument, Parameters<typeof machineStates.from>[0]>(
  'vm',
  'VM',
  machineStates,
  {
    fields: {
      ssh_keys: { type: [String], default: [] },
      user_data_sealed: { type: String, default: '-' },
      vpc_id: { type: String, default: null },
    },
    placedAs: ({ image }) => (image === deployMachineImage ? 'vm_machine' : 'vm'),
    specOf: ({ ssh_keys }) => ({ ssh_keys }),
    onNics: async (vm) => {
      const nic = await Nic.findOne({ tenant_id: vm.tenant_id, instance_id: vm._id }).lean()
      return { vpc_id: await countInVpc(vm, nic?.vpc_id ?? null) }
    },
  },
)
const { model: Vm, resource } = vmKind

/** Counts a VM in a VPC, which it never leaves. Throws NotFound, QuotaExceeded, and a 409 for another VPC. */
async function countInVpc(
  { _id, tenant_id, vpc_id: before }: Pick<VmDocument, '_id' | 'tenant_id' | 'vpc_id'>,
  vpcId: string | null,
): Promise<string | null> {
  if (vpcId === null || vpcId === before) return before
  if (before !== null)
    throw new Problem(409, 'other_vpc', 'The subnet belongs to another VPC', 'The VM is in another VPC')
  await lockParent(vpcResource, tenant_id, vpcId) // concurrent calls run in sequence: the second counts the first
  const used = await Vm.countDocuments({ tenant_id, vpc_id: vpcId, _id: { $ne: _id } } as object)
  await needQuota(tenant_id, 'max_vms_per_vpc', used)
  return vpcId
}

keptBy(vpcResource, async ({ _id, tenant_id }) => {
  const vms = await Vm.countDocuments({ tenant_id, vpc_id: _id } as object)
  if (vms) throw new Problem(409, 'vpc_in_use', 'The VPC is in use', `The VPC has ${vms} VMs`)
})

const contextOf = (tenantId: string): string => `vms.user_data:${tenantId}`
sealedField(Vm, 'user_data_sealed', ({ tenant_id }) => contextOf(tenant_id))
const sealUserData = async (tenantId: string, text: string | null): Promise<string> =>
  text === null ? '-' : sealSecret(text, contextOf(tenantId))

/** Null if the VM has no user data. */
export const openUserData = async ({ user_data_sealed, tenant_id }: VmDocument): Promise<string | null> =>
  user_data_sealed === '-' ? null : unsealSecret(user_data_sealed, contextOf(tenant_id))

export interface NewVm extends NewMachine, Pick<VmDocument, 'ssh_keys' | 'vpc_id'> {
  /** User data for cloud-init. */
  user_data: string | null
}

/** Throws NameTaken, QuotaExceeded, NotFound, InvalidInput and the 409s of disks and subnets. */
export async function acceptVm(
  by: By,
  { start, host_id, nics, user_data, vpc_id, managed_by = null, ...spec }: NewVm,
): Promise<Accepted<VmDocument>> {
  const { tenant_id } = by
  const fields = {
    ...spec,
    ...newborn(start, host_id),
    command: [],
    entrypoint: [],
    restart_policy: 'always' as const,
    vpc_id: null, // until `reserve` counts it there
    config_vars_sealed: await vmKind.sealConfigVars(tenant_id, {}),
    user_data_sealed: await sealUserData(tenant_id, user_data),
    transfer_sealed: '-',
  }
  return create(by, resource, {
    fields,
    managed_by,
    input: { start },
    async reserve(vm) {
      const placed = { vpc_id: await countInVpc(vm, vpc_id) }
      await Vm.updateOne({ _id: vm._id, tenant_id }, { $set: placed }, { timestamps: false })
      return { ...placed, ...(await takeForNew(vmKind, { ...vm, ...placed }, { host_id, nics })) }
    },
  })
}

type VmChanges = Changes<VmDocument, 'cpu_cores' | 'memory_mib' | 'root_disk_gib' | 'log_cap_mib' | 'tags'>

/** Throws InvalidInput, QuotaExceeded, and NoCapacity if the host has no room for the new size. */
export const acceptVmUpdate = (by: By, id: string, changes: VmChanges): Promise<Accepted<VmDocument>> =>
  begin(by, resource, id, 'update', {
    input: { changes },
    reserve: (vm) => {
      mustNotShrink(vm, changes)
      return resize(id, by.tenant_id, vmKind.sizeOf({ ...vm, ...changes } as VmDocument))
    },
  })

accepts(resource, {
  create: acceptVm,
  verbs: { ...machineVerbs(vmKind), update: acceptVmUpdate },
})
