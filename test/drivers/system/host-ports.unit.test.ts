import { expect, test } from '@jest/globals'
import { PortInUse, PortNotAllowed } from '../../../drivers/errors.ts'
import { makeHostPorts } from '../../../drivers/system/host-ports.ts'

const ports = makeHostPorts({ address: '127.0.0.1', range: [22_000, 22_003], reserved: [[22_001, 22_002]] })
const asked = (host_port: number | null, kept_port: number | null = null) => [
  { container_port: 80, protocol: 'tcp' as const, host_port, kept_port },
]

test.each([21_999, 22_004, 22_001, 22_002, 4789, 80])('a host does not publish the port %d', async (port) => {
  await expect(ports.place('one', asked(port), new Set())).rejects.toThrow(PortNotAllowed)
})

test('a host publishes a requested port of its range, and what it is told to beside it', async () => {
  expect(await ports.place('one', asked(22_003), new Set())).toMatchObject([{ host_port: 22_003 }])
  expect(await ports.place('one', asked(80), new Set(), [80])).toMatchObject([{ host_port: 80 }])
})

test('a host chooses no reserved port, and keeps none', async () => {
  expect(await ports.place('one', asked(null, 22_001), new Set(['22000/tcp']))).toMatchObject([
    { host_port: 22_003 },
  ])
  await expect(ports.place('one', asked(null), new Set(['22000/tcp', '22003/tcp']))).rejects.toThrow(
    PortInUse,
  )
})
