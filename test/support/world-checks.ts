import { expect } from '@jest/globals'
import type Docker from 'dockerode'
import { Host } from '../../models/compute/hosts.ts'
import { Reservation } from '../../models/compute/reservations.ts'
import { everyTenant } from '../../models/tenant-scope.ts'
import type { ContainerBody, Json } from './client.ts'
import { eventually } from './eventually.ts'
import { runInside } from './inside.ts'
import { pings } from './networks.ts'
import { addressesIn, type ModelContainer, type World } from './world.ts'

interface ContainerView extends ContainerBody {
  memory_mib: number
  nics: { id: string; subnet_id: string; ip_address: string }[]
  disks: { disk_id: string; mount_path: string }[]
}

interface DiskView extends Json {
  id: string
  status: string
  size_gib: number
  host_id: string
}

interface Found {
  slot: string
  host: string
  engine: Docker
  engineId: string
  running: boolean
  pid: number
}

/**
 * Compares everything in the API and on the machine with the model. Fails at once if an instance runs twice; other
 * differences may take a while, because hosts report and repair by themselves.
 */
export async function compare(world: World): Promise<void> {
  const twice = await eventually(async () => {
    const found = await onEngines(world)
    const running = found.filter((place) => place.running).map(({ slot }) => slot)
    const again = running.filter((slot, i) => running.indexOf(slot) !== i)
    if (again.length) return again // waiting does not help
    await compareViews(world)
    compareEngines(world, found)
    await compareNetworks(world, found)
    await compareDisks(world, found)
    await compareSums(world)
    return []
  })
  expect(twice).toEqual([])
}

async function compareViews(world: World): Promise<void> {
  const { owner } = world.tenant
  const all = async <T>(path: string): Promise<T[]> =>
    (await owner.get<{ items: T[] }>(`/api/v1/${path}?limit=100`)).items
  const [containers, disks] = await Promise.all([all<ContainerView>('containers'), all<DiskView>('disks')])
  expect(new Set(containers.map(({ id }) => id))).toEqual(idsOf(world.containers))
  expect(new Set(disks.map(({ id }) => id))).toEqual(idsOf(world.disks))

  for (const model of world.containers.values()) {
    const view = containers.find(({ id }) => id === model.id)
    expect({ slot: model.slot, ...view }).toMatchObject({
      status: model.running ? 'running' : 'stopped',
      operation_id: null,
      memory_mib: model.memory_mib,
    })
    const { nics = [], disks: attached = [], host_id = null } = view ?? {}
    expect(nics.map(({ subnet_id }) => subnet_id).toSorted()).toEqual(model.subnets.toSorted())
    const paths = [...model.disks].map(([slot, path]) => `${world.disks.get(slot)?.id} at ${path}`)
    expect(attached.map(({ disk_id, mount_path }) => `${disk_id} at ${mount_path}`).toSorted()).toEqual(
      paths.toSorted(),
    )
    world.hostOf.set(model.id, host_id)
    world.nicsOf.set(model.id, nics)
  }
  for (const model of world.disks.values()) {
    const view = disks.find(({ id }) => id === model.id)
    expect({ slot: model.slot, ...view }).toMatchObject({
      status: model.on === null ? 'available' : 'attached',
      size_gib: model.gib,
    })
    const snapshots = await all<{ name: string }>(`disks/${model.id}/snapshots`)
    expect(new Set(snapshots.map(({ name }) => name))).toEqual(new Set(model.snapshots.keys()))
    world.hostOf.set(model.id, view?.host_id ?? null)
  }
  const addresses = containers.flatMap(({ nics }) => nics.map((nic) => `${nic.subnet_id} ${nic.ip_address}`))
  expect(new Set(addresses).size).toBe(addresses.length)
}

const idsOf = (models: Map<string, { id: string }>): Set<string> =>
  new Set([...models.values()].map(({ id }) => id))

async function onEngines(world: World): Promise<Found[]> {
  const slots = new Map([...world.containers.values()].map(({ id, slot }) => [id, slot]))
  const found = await Promise.all(
    world.hosts.map(async ({ id: host, engine }) => {
      const label = [`keelson.tenant=${world.tenant.id}`, 'keelson.kind=container']
      const there = await engine.listContainers({ all: true, filters: { label } })
      return Promise.all(
        there.map(async ({ Id, Labels }): Promise<Found> => {
          const slot = slots.get(Labels['keelson.resource'] ?? '') ?? 'nobody’s'
          const { Running, Pid } = (await engine.getContainer(Id).inspect()).State
          return { slot, host, engine, engineId: Id, running: Running, pid: Pid }
        }),
      )
    }),
  )
  return found.flat()
}

/** Each container exists once, on the recorded host and in the recorded state; one that never ran may be absent. */
function compareEngines(world: World, found: Found[]): void {
  const really = found.filter(({ running }) => running).map(({ slot, host }) => `${slot} on ${host}`)
  const wanted = [...world.containers.values()].filter(({ running }) => running)
  expect(really.toSorted()).toEqual(
    wanted.map(({ slot, id }) => `${slot} on ${world.hostOf.get(id)}`).toSorted(),
  )
  const slots = found.map(({ slot }) => slot)
  expect(slots.toSorted()).toEqual([...new Set(slots)].toSorted())
  expect(slots).not.toContain('nobody’s')
}

const one = <T>(of: T[], what: string): T => {
  const [first] = of
  if (first === undefined) throw new Error(`no ${what}`)
  return first
}

/** The containers have their addresses, neighbours reach each other, and strangers do not. */
async function compareNetworks(world: World, found: Found[]): Promise<void> {
  const members = [...world.containers.values()].filter(({ running, subnets }) => running && subnets.length)
  const pidOf = ({ slot }: ModelContainer): number =>
    one(
      found.filter((place) => place.slot === slot),
      slot,
    ).pid
  const addressesOf = ({ id }: ModelContainer): string[] =>
    (world.nicsOf.get(id) ?? []).map(({ ip_address }) => ip_address)
  for (const member of members)
    expect(await addressesIn(pidOf(member))).toEqual(expect.arrayContaining(addressesOf(member)))

  for (const vpc of new Set(world.subnets.map((subnet) => subnet.vpc))) {
    const [first, ...others] = members.filter(({ subnets }) => subnets.some((id) => world.vpcOf(id) === vpc))
    if (!first) continue
    for (const other of others.slice(0, 3))
      for (const address of addressesOf(other))
        expect([first.slot, other.slot, address, await pings({ pid: pidOf(first) }, address)]).toEqual([
          first.slot,
          other.slot,
          address,
          true,
        ])
  }
}

/** Each disk still holds what was written to it, wherever it is; new disks are written to. */
async function compareDisks(world: World, found: Found[]): Promise<void> {
  for (const container of world.containers.values()) {
    if (!container.running) continue
    const place = one(
      found.filter(({ slot }) => slot === container.slot),
      container.slot,
    )
    for (const [slot, path] of container.disks) {
      const disk = world.disks.get(slot)
      if (!disk) throw new Error(`no disk ${slot}`)
      expect(world.hostOf.get(disk.id)).toBe(place.host)
      if (disk.mark === null) {
        disk.mark = disk.id
        await inside(place, `echo ${disk.mark} > ${path}/mark && sync`)
      } else expect([slot, await inside(place, `cat ${path}/mark`)]).toEqual([slot, disk.mark])
    }
  }
}

const inside = ({ engine, engineId }: Found, script: string): Promise<string> =>
  runInside(engine, engineId, script)

const memory = (of: { memory_mib: number }[]): number =>
  of.reduce((sum, { memory_mib }) => sum + memory_mib, 0)

/** The single reservations, and their sums. */
async function compareSums(world: World): Promise<void> {
  const held = await Reservation.find({}).setOptions(everyTenant).lean()
  const mine = held.filter(({ tenant_id }) => tenant_id === world.tenant.id)
  const containers = [...world.containers.values()]
  expect(memory(mine)).toBe(memory(containers))
  expect((await world.tenant.holds()).memory_mib).toBe(memory(containers))
  for (const host of await Host.find().lean()) {
    const there = held.filter(({ host_id, target_host_id }) => [host_id, target_host_id].includes(host._id))
    expect([host.name, host.reserved.memory_mib]).toEqual([host.name, memory(there)])
    const ours = containers.filter(({ id }) => world.hostOf.get(id) === host._id)
    const theirs = there.filter(({ tenant_id }) => tenant_id === world.tenant.id)
    expect([host.name, memory(theirs)]).toEqual([host.name, memory(ours)])
  }
}
