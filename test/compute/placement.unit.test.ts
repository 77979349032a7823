import { expect, test } from '@jest/globals'
import { explain } from '../../models/compute/placement.ts'

// What a tenant reads when no host has room.

const host = (cpu_milli: number, memory_mib: number, more: object = {}) => ({
  status: 'active' as const,
  cordoned: false,
  engine_silent_since: null,
  capacity: { cpu_cores: 4, memory_mib: 8192, disk_gib: 100 },
  reserved: { cpu_milli, memory_mib, disk_gib: 100 },
  ...more,
})
const size = { cpu_milli: 2000, memory_mib: 1024, disk_gib: 0 }

test('says what is full, by host', () => {
  const hosts = [host(3000, 0), host(3500, 0), host(0, 8000), host(4000, 8192)]
  expect(explain(hosts, size)).toBe(
    'No host has 2 cpu cores and 1024 MiB of memory free (4 in all: 2 with too little CPU, 1 with too little memory, 1 with too little CPU and memory)',
  )
})

test('says of other hosts where the present one does not count', () => {
  expect(explain([host(4000, 0)], size, 'No other host')).toMatch(
    /^No other host has 2 cpu cores .* too little CPU\)$/,
  )
  expect(explain([], size, 'No other host')).toBe('No other host takes new instances')
})

test('says of disk only where disk is asked for', () => {
  expect(explain([host(0, 0)], { cpu_milli: 0, memory_mib: 0, disk_gib: 5 })).toBe(
    'No host has 5 GiB of disk free (1 in all: 1 with too little disk)',
  )
})

test('counts hosts that take nothing apart from full ones', () => {
  const hosts = [
    host(4000, 0),
    host(0, 0, { cordoned: true }),
    host(0, 0, { status: 'unreachable' }),
    host(0, 0, { engine_silent_since: new Date() }),
  ]
  expect(explain(hosts, size)).toContain(
    '(4 in all: 1 with too little CPU, 1 unreachable or being evacuated, 1 cordoned, 1 with an engine that does not answer)',
  )
  expect(explain(hosts.slice(1), size)).toMatch(/^No host takes new instances \(3 in all/)
})
