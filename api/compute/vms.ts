import { z } from 'zod'
import { acceptVm, acceptVmUpdate, type VmDocument, vmImages, vmKind } from '../../models/compute/vms.ts'
import { accepting } from '../accept.ts'
import { byId, Id } from '../fields.ts'
import { operation } from '../operation.ts'
import { mayChooseHost } from './hosts.ts'
import { instanceDisks } from './instance-disks.ts'
import { instanceNics } from './instance-nics.ts'
import { shownAs } from './instances.ts'
import { instanceObservation } from './observation/instances.ts'
import {
  creatableMachine,
  log_cap_mib,
  machineOperations,
  machineView,
  serialConsole,
  sizes as sizesOfMachines,
  tags,
  toMachineView,
} from './machines.ts'

// The minimum memory in which Debian boots and runs, and the minimum disk that fits its image.
const sizes = {
  ...sizesOfMachines,
  memory_mib: z.int().min(256).max(4_194_304),
  root_disk_gib: z.int().min(2).max(65_536),
}

/** A line for `authorized_keys`, without options: those can do more than grant a login. */
const SshKey = z
  .string()
  .max(2048)
  .regex(
    /^(ssh-(ed25519|rsa)|ecdsa-sha2-nistp\d{3}|sk-(ssh-ed25519|ecdsa-sha2-nistp256)@openssh\.com) [A-Za-z0-9+/]{16,}={0,2}( [^\p{Cc}]*)?$/u,
    'must be a public key of OpenSSH',
  )

const maxUserDataBytes = 16_384

// A VM has no config vars, since the platform starts no command in it. User data configures it.
const { config_vars: _, ...creatable } = creatableMachine

const CreateVm = z.strictObject({
  ...creatable,
  ...sizes,
  image: z.enum(vmImages.map(({ name }) => name)),
  root_disk_gib: sizes.root_disk_gib
    .default(4)
    .describe('The size of the root disk, which can only grow; a new size takes effect at the next start'),
  ssh_keys: z.array(SshKey).max(20).default([]).describe('SSH public keys that can log in as `debian`'),
  user_data: z
    .string()
    .refine(
      (text) => Buffer.byteLength(text) <= maxUserDataBytes,
      `must have at most ${maxUserDataBytes} bytes`,
    )
    .nullable()
    .default(null)
    .describe('cloud-init user data. The API never returns it, because it may hold secrets'),
  vpc_id: Id.nullable().default(null).describe('Default: the VPC of its NICs'),
})

const UpdateVm = z.strictObject({ ...sizes, log_cap_mib, tags }).partial()

const VmView = z
  .strictObject({ ...machineView, ssh_keys: z.array(z.string()), vpc_id: Id.nullable() })
  .meta({ id: 'Vm' })

const toView = (vm: VmDocument): z.output<typeof VmView> => ({
  ...toMachineView(vm),
  ssh_keys: vm.ssh_keys,
  vpc_id: vm.vpc_id,
})

const shown = {
  ...shownAs(vmKind),
  plural: 'vms' as const,
  staysBehind: 'its root disk, memory and disks move with it',
  console: serialConsole('VM'),
  disks: {
    attach: 'Attach a disk to a VM, at once if it runs, or else at its next start; the guest mounts it',
    detach: 'Detach a disk from a VM; unmount it in the guest first',
  },
  view: VmView,
  toView,
}

const createVm = operation({
  method: 'POST',
  path: '/api/v1/vms',
  permission: 'vms:create',
  summary: 'Create a VM from one of the platform’s images and start it',
  body: CreateVm,
  responses: { 202: VmView },
  refuses: [404],
  handle: ({ caller, body }) => {
    mayChooseHost(caller, body.host_id)
    return accepting(caller, toView, (by) => acceptVm(by, body))
  },
})

const updateVm = operation({
  method: 'PUT',
  path: '/api/v1/vms/{id}',
  permission: 'vms:update',
  summary: 'Update a VM; tags change at once, its size at the next start',
  params: byId,
  body: UpdateVm,
  responses: { 202: VmView },
  handle: ({ caller, params, body }) =>
    accepting(caller, toView, (by) => acceptVmUpdate(by, params.id, body)),
})

const listVmImages = operation({
  method: 'GET',
  path: '/api/v1/vms/images',
  permission: 'vms:read',
  summary: 'List VM images',
  responses: {
    200: z.strictObject({
      items: z.array(z.strictObject({ name: z.string(), title: z.string() })),
      total: z.int(),
    }),
  },
  handle: async () => ({ items: [...vmImages], total: vmImages.length }),
})

const common = machineOperations(shown)

export const vms = [
  listVmImages, // before `get`, whose path would match it with the id `images`
  common.list,
  createVm,
  common.get,
  updateVm,
  common.delete,
  common.start,
  common.stop,
  common.reboot,
  common.suspend,
  common.resume,
  common.reschedule,
  ...instanceNics(shown),
  ...instanceObservation(shown),
  ...instanceDisks(shown),
]
