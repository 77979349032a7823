import { setTimeout as delay } from 'node:timers/promises'
import { EngineUnavailable } from '../errors.ts'
import type { MachineDisk, MachineNic } from '../machines.ts'
import {
  backend,
  diskDevice,
  diskNode,
  diskProperties,
  nicDevice,
  nicProperties,
  nodeName,
} from './arguments.ts'
import { run } from '../system/programs.ts'
import { type Qmp, QmpError } from '../system/qmp.ts'

// Hotplugs disks and NICs. Each call checks the present state: an earlier call may have been killed halfway.

async function hasNode(qmp: Qmp, name: string): Promise<boolean> {
  const nodes = (await qmp.execute('query-named-block-nodes', { flat: true })) as { 'node-name': string }[]
  return nodes.some((node) => node['node-name'] === name)
}

async function hasDevice(qmp: Qmp, id: string): Promise<boolean> {
  const all = (await qmp.execute('qom-list', { path: '/machine/peripheral' })) as { name: string }[]
  return all.some(({ name }) => name === id)
}

export async function plugDisk(qmp: Qmp, disk: MachineDisk, lun: number): Promise<void> {
  const { disk_id, socket, read_only } = disk
  if (!(await hasNode(qmp, nodeName(disk_id))))
    await qmp.execute('blockdev-add', diskNode(disk_id, socket, read_only))
  if (!(await hasDevice(qmp, diskDevice(disk_id))))
    await qmp.execute('device_add', diskProperties(disk_id, lun))
}

export async function unplugDisk(qmp: Qmp, diskId: string): Promise<void> {
  await unplug(qmp, diskDevice(diskId))
  if (await hasNode(qmp, nodeName(diskId)))
    await patiently(() => qmp.execute('blockdev-del', { 'node-name': nodeName(diskId) }))
}

/** The helper opens the tap and gives it to QEMU over the machine's second monitor, `orders`. */
export async function plugNic(
  qmp: Qmp,
  { helper, orders }: { helper: string; orders: string },
  port: number,
  nic: MachineNic,
): Promise<void> {
  if (await hasDevice(qmp, nicDevice(port))) return
  await qmp.execute('netdev_del', { id: backend(port) }).catch(isRefusal)
  await run(helper, ['plug', orders, nic.namespace, nic.device, backend(port)])
  await qmp.execute('device_add', nicProperties(port, nic))
}

export async function unplugNic(qmp: Qmp, port: number): Promise<void> {
  await unplug(qmp, nicDevice(port))
  await qmp.execute('netdev_del', { id: backend(port) }).catch(isRefusal)
}

export const setLink = (qmp: Qmp, port: number, up: boolean): Promise<unknown> =>
  qmp.execute('set_link', { name: nicDevice(port), up })

// A microVM releases a NIC five seconds after the request.
const goesWithinMs = 30_000
const askAgainMs = 8_000

async function unplug(qmp: Qmp, device: string): Promise<void> {
  const deadline = Date.now() + goesWithinMs
  for (let asked = 0; await hasDevice(qmp, device); await delay(25)) {
    if (Date.now() > deadline) throw new EngineUnavailable('The machine does not release a device')
    if (Date.now() - asked < askAgainMs) continue
    asked = Date.now()
    await qmp.execute('device_del', { id: device }).catch(isRefusal) // it is already being removed
  }
}

const tries = 40

/** Retries: a device that was just released stays in use for a moment. */
async function patiently(work: () => Promise<unknown>): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      await work()
      return
    } catch (error) {
      if (!(error instanceof QmpError) || attempt === tries) throw error
    }
    await delay(50)
  }
}

function isRefusal(error: unknown): void {
  if (!(error instanceof QmpError)) throw error
}
