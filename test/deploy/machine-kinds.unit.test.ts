import { describe, expect, test } from '@jest/globals'
import type { PlacedKindName } from '../../lib/host-protocol.ts'
import { instanceKinds } from '../../models/compute/instance-kinds.ts'
import { constraintsOf, type InstanceDocument } from '../../models/compute/instances.ts'
import {
  chooseMachineKind,
  deployMachineKinds,
  type MachineOrder,
  providerOf,
} from '../../models/deploy/machine-providers.ts'
import { machineKindsOf } from '../../worker/host/machine-kinds.ts'

const hosts = {
  withKvm: ['container', 'vm', 'vm_machine'],
  withContainers: ['container', 'machine'],
  withBoth: ['container', 'vm', 'machine', 'vm_machine'],
  withoutMachines: ['container', 'microvm', 'vm', 'load_balancer'],
} as const satisfies Record<string, PlacedKindName[]>

const vmsFirst = ['vm', 'container'] as const

describe('the machines of a new deploy server', () => {
  test.each([
    ['VMs, where a host offers both', vmsFirst, hosts.withBoth, null, 'vm'],
    ['VMs, where only those are offered', vmsFirst, hosts.withKvm, null, 'vm'],
    ['containers, where a host offers no VMs', vmsFirst, hosts.withContainers, null, 'container'],
    ['containers, where the operator prefers them', ['container', 'vm'], hosts.withBoth, null, 'container'],
    ['what it asks for', vmsFirst, hosts.withBoth, 'container', 'container'],
  ] as const)('are %s', (_, allowed, offered, asked, chosen) => {
    expect(chooseMachineKind(asked, { allowed, offered })).toBe(chosen)
  })

  test.each([
    ['no host offers any', vmsFirst, hosts.withoutMachines, null],
    ['no host offers what the operator allows', ['vm'], hosts.withContainers, null],
    ['no host offers what it asks for', vmsFirst, hosts.withContainers, 'vm'],
    ['the operator does not allow what it asks for', ['vm'], hosts.withBoth, 'container'],
  ] as const)('are refused if %s', (_, allowed, offered, asked) => {
    expect(() => chooseMachineKind(asked, { allowed, offered })).toThrow(
      expect.objectContaining({ status: 409, code: 'no_machines' }),
    )
  })

  test('have whole cores and room for the guest’s system if they are VMs', () => {
    expect(providerOf('container').sizeOf('mini')).toEqual({ cpu_cores: 0.5, memory_mib: 512 })
    expect(providerOf('vm').sizeOf('mini')).toEqual({ cpu_cores: 1, memory_mib: 640 })
  })
})

describe('a host', () => {
  test.each([
    ['kvm', 'kvm', true],
    ['kvm', 'tcg', false],
    ['kvm', null, false],
    ['always', 'kvm', true],
    ['always', 'tcg', true],
    ['always', null, true],
    ['never', 'kvm', false],
    ['never', 'tcg', false],
    ['never', null, false],
  ] as const)(
    'whose operator wants VMs by “%s”, with the accelerator %s: offers VMs %s',
    (vmsMay, accelerator, vms) => {
      const host = { vmsMay, accelerator, vmsRun: true }
      const kinds = vms ? ['vm_machine'] : []
      expect(machineKindsOf({ ...host, containersMay: false })).toEqual(kinds)
      expect(machineKindsOf({ ...host, containersMay: true })).toEqual(['machine', ...kinds])
    },
  )

  test('offers no VMs where its engine does not run them', () => {
    const host = { vmsMay: 'always', accelerator: 'kvm', vmsRun: false } as const
    expect(machineKindsOf({ ...host, containersMay: false })).toEqual([])
    expect(machineKindsOf({ ...host, containersMay: true })).toEqual(['machine'])
  })
})

/** What a host must run to take this instance. Without tags, by which instances keep apart: those are looked up. */
async function kindOf(kind: keyof typeof instanceKinds, fields: object): Promise<string | undefined> {
  const instance = { tags: {}, desired_state: 'running', ...fields } as InstanceDocument
  return (await constraintsOf(instanceKinds[kind], instance, null)).kind
}

describe('an instance moves only to a host that runs', () => {
  test.each(deployMachineKinds)('machines of deploy servers, if it is one and a %s', async (kind) => {
    const order: MachineOrder = {
      name: 'w1',
      tags: {},
      managed_by: 'server',
      instance_type: 'mini',
      nic: { subnet_id: 'subnet', ip_address: '10.77.0.11' },
      container_image: 'keelson/machine:1',
      registries: ['10.77.0.11:5000'],
    }
    const provider = providerOf(kind)
    expect(await kindOf(kind, provider.fieldsOf(order))).toBe(provider.placed_as)
  })

  test.each([
    ['container', { machine: false }],
    ['microvm', {}],
    ['vm', { image: 'debian-12' }],
  ] as const)('its kind, if it is a %s of a tenant', async (kind, fields) => {
    expect(await kindOf(kind, { cpu_cores: 1, memory_mib: 64, root_disk_gib: 1, ...fields })).toBe(kind)
  })
})
