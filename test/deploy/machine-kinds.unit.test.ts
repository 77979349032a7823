import { describe, expect, test } from '@jest/globals'
import type { PlacedKindName } from '../../lib/host-protocol.ts'
import { chooseMachineKind, providerOf } from '../../models/deploy/machine-providers.ts'

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
