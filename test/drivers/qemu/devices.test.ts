import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { afterAll, afterEach, beforeAll, expect } from '@jest/globals'
import type { MachineDisk, MachineNic } from '../../../drivers/machines.ts'
import type { SubnetSpec } from '../../../drivers/networks.ts'
import { newId } from '../../../lib/ids.ts'
import { type DiskHost, diskHost, kernelTraces, removeDisks, removeHosts } from '../../support/disk-hosts.ts'
import { testDrawn } from '../../support/drawn.ts'
import { eventually } from '../../support/eventually.ts'
import {
  inMachine,
  machines,
  machineSpec,
  settings,
  start,
  withMachines,
} from '../../support/machine-hosts.ts'
import { Fabric, nicSpec, subnetSpec } from '../../support/networks.ts'

const execute = promisify(execFile)

let fabric: Fabric
let here: DiskHost

async function nicOf(subnet: SubnetSpec, address: string): Promise<MachineNic> {
  const host = fabric.host(0)
  const spec = nicSpec(subnet, address, 'tap')
  const tap = await host.networks.attachNic(spec)
  const { id, mac_address, ip_address, default_route } = spec
  return {
    id,
    mac_address,
    ip_address,
    default_route,
    prefix_length: 24,
    gateway_ip: subnet.gateway_ip,
    ...tap,
  }
}

async function pluggedDisk(machineId: string): Promise<MachineDisk> {
  const disk_id = newId()
  await here.disks.create({ id: disk_id, size_gib: 1 })
  return { disk_id, mount_path: '/data', read_only: false, ...(await here.disks.plug(disk_id, machineId)) }
}

/**
 * Uses `nc`: the image's static `wget` cannot resolve names. Returns the last line, which is the page; empty without an
 * answer.
 */
const fetched = (id: string, address: string): Promise<string> =>
  inMachine(id, `printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 3 ${address} 80 2>/dev/null | tail -n 1`)

withMachines('machines with disks and NICs', () => {
  beforeAll(async () => {
    fabric = await Fabric.make(1)
    here = await diskHost(settings.plugs)
  })
  afterEach(async () => {
    for (const { id } of await machines.list()) await machines.remove(id, { discard: true })
    await fabric.clear()
    await removeDisks()
    expect(await kernelTraces(here.settings.run)).toEqual([])
  })
  afterAll(async () => {
    await fabric.remove()
    await removeHosts()
  })

  testDrawn(
    'two tenants’ machines with equal addresses reach their own neighbours, and never the host',
    async () => {
      const subnets = [subnetSpec(), subnetSpec()]
      for (const subnet of subnets) await fabric.host(0).networks.applySubnet(subnet)
      const ids: string[] = []
      for (const [index, subnet] of subnets.entries()) {
        await fabric.join(fabric.host(0), subnet, '10.0.0.9', `neighbour-${index}`)
        const spec = machineSpec({
          nics: [await nicOf(subnet, '10.0.0.5')],
          network: { dns_server: '10.0.0.1', search_domain: 'test' },
        })
        ids.push(spec.id)
        await start(spec)
      }
      for (const [index, id] of ids.entries()) {
        expect(await fetched(id, '10.0.0.9')).toBe(`neighbour-${index}`)
        expect(await fetched(id, fabric.outsideAddress)).toBe('outside')
        for (const address of [fabric.host(0).address, '169.254.169.254'])
          expect(await fetched(id, address)).toBe('')
        const [sample] = await machines.sample([(await machines.find(id)) as never])
        expect(sample?.net_rx_bytes).toBeGreaterThan(0)
      }
    },
  )

  testDrawn('a NIC is hot-plugged and unplugged, and works after a suspension', async () => {
    const subnet = subnetSpec()
    await fabric.host(0).networks.applySubnet(subnet)
    await fabric.join(fabric.host(0), subnet, '10.0.0.9', 'neighbour')
    const spec = machineSpec()
    await start(spec)
    const nic = await nicOf(subnet, '10.0.0.5')
    await machines.attachNic(spec.id, nic)
    await machines.attachNic(spec.id, nic)
    expect(await fetched(spec.id, '10.0.0.9')).toBe('neighbour')
    await machines.suspend(spec.id)
    await machines.resume({ ...spec, nics: [nic] })
    expect(await fetched(spec.id, '10.0.0.9')).toBe('neighbour')
    await machines.detachNic(spec.id, nic.id)
    expect(await inMachine(spec.id, 'ls /sys/class/net')).toBe('lo')
  })

  testDrawn(
    'a disk is mounted live, survives a kill of its daemon, and is removed when it is unused',
    async () => {
      const spec = machineSpec()
      await start(spec)
      const disk = await pluggedDisk(spec.id)
      await machines.attachDisk(spec.id, disk)
      await inMachine(spec.id, 'echo kept > /data/file; sync')
      const [traces] = (await here.disks.list()).filter(({ id }) => id === disk.disk_id)
      for (const pid of traces?.processes ?? []) process.kill(pid, 'SIGKILL')
      expect(await eventually(async () => (await here.disks.find(disk.disk_id))?.state !== 'attached')).toBe(
        true,
      )
      await here.disks.plug(disk.disk_id, spec.id)
      expect(await inMachine(spec.id, 'echo 3 > /proc/sys/vm/drop_caches; cat /data/file')).toBe('kept')
      await machines.suspend(spec.id)
      const present = { ...spec, disks: [disk] }
      await machines.resume(present)
      expect(await inMachine(spec.id, 'echo more >> /data/file; sync; cat /data/file')).toBe('kept\nmore')
      const busy = await machines.exec(spec.id, ['sh', '-c', 'cd /data && echo in && sleep 601'], {
        cols: 80,
        rows: 24,
      })
      await new Promise((resolve) => busy.stream.once('data', resolve))
      await expect(machines.detachDisk(spec.id, disk.disk_id)).rejects.toMatchObject({ code: 'disk_in_use' })
      await busy.close()
      await eventually(async () => !(await inMachine(spec.id, 'ps')).includes('sleep 601'))
      await machines.detachDisk(spec.id, disk.disk_id)
      await machines.detachDisk(spec.id, disk.disk_id)
      await here.disks.resize(disk.disk_id, 2)
      await machines.attachDisk(spec.id, { ...disk, ...(await here.disks.plug(disk.disk_id, spec.id)) })
      expect(await inMachine(spec.id, 'cat /data/file')).toBe('kept\nmore')
      await machines.stop(spec.id, 5)
      await here.disks.detach(disk.disk_id)
      const { host_path } = await here.disks.attach(disk.disk_id)
      expect((await execute('cat', [`${host_path}/file`])).stdout).toBe('kept\nmore\n')
    },
  )
})
