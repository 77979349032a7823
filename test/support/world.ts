import { runIn } from '../../drivers/linux/commands.ts'
import { newId } from '../../lib/ids.ts'
import type { Client, Json } from './client.ts'
import { allHosts, type TestHost } from './hosts.ts'
import type { Dice } from './random.ts'
import type { TestTenant } from './tenants.ts'

// The model of a tenant: random operations are drawn from it and applied to it, and world-checks.ts compares it with
// reality.

export interface ModelContainer {
  slot: string
  id: string
  running: boolean
  memory_mib: number
  /** The ids of its NICs' subnets; the addresses are compared with those inside the container. */
  subnets: string[]
  /** Mount path by disk slot. */
  disks: Map<string, string>
}

export interface ModelDisk {
  slot: string
  id: string
  gib: number
  /** The text that was written to it; null if none. */
  mark: string | null
  /** The former content, by the snapshot's name. */
  snapshots: Map<string, Pick<ModelDisk, 'mark' | 'gib'>>
  /** The slot of its container. */
  on: string | null
}

export interface ModelSubnet {
  id: string
  vpc: string
}

/** One random operation: its request, and the change of the model when it succeeds. */
export interface Command {
  words: string
  /** Slots that no other command of the round may use. */
  uses: string[]
  method: 'POST' | 'PUT' | 'DELETE'
  path: string
  body?: Json
  /** The request must be refused with this status, and changes nothing. */
  refused?: number
  /** The path of what it makes, which stays as `error` if it fails. */
  made?: (body: Json) => string
  /** Updates the model; called with the body of the acceptance. */
  apply?: (body: Json) => void
}

const diskPath = (slot: string): string => `/mnt/${slot}`

/** A tenant's containers, disks and subnets, as they should be. */
export class World {
  readonly tenant: TestTenant
  readonly containers = new Map<string, ModelContainer>()
  readonly disks = new Map<string, ModelDisk>()
  readonly subnets: ModelSubnet[]
  readonly hosts: TestHost[]
  /** The recorded hosts, from the last look. */
  readonly hostOf = new Map<string, string | null>()

  private constructor(tenant: TestTenant, hosts: TestHost[], subnets: ModelSubnet[]) {
    this.tenant = tenant
    this.hosts = hosts
    this.subnets = subnets
  }

  /** Makes two VPCs with the same ranges, and two subnets in each. */
  static async make(tenant: TestTenant): Promise<World> {
    const subnets: ModelSubnet[] = []
    for (const vpc of ['one', 'other']) {
      const made = await created(tenant.owner, '/api/v1/vpcs', { name: vpc, cidr: '10.0.0.0/16' })
      for (const third of [1, 2]) {
        const body = { name: `${vpc}-${third}`, vpc_id: made, cidr: `10.0.${third}.0/24` }
        subnets.push({ id: await created(tenant.owner, '/api/v1/subnets', body), vpc: made })
      }
    }
    return new World(tenant, await allHosts(), subnets)
  }

  /** A random command on unused slots; null if the drawn one makes no sense now. */
  draw(dice: Dice, slots: { containers: number; disks: number }): Command | null {
    const container = this.containers.get(`c${dice.number(slots.containers)}`)
    const disk = this.disks.get(`d${dice.number(slots.disks)}`)
    const free = {
      container: `c${dice.number(slots.containers)}`,
      disk: `d${dice.number(slots.disks)}`,
    }
    const draws: (() => Command | null)[] = [
      () => this.#create(dice, free.container),
      () => this.#create(dice, free.container),
      () => container && this.#startOrStop(container),
      () => container && this.#startOrStop(container),
      () => container && this.#resize(dice, container),
      () => container && this.#move(container),
      () => container && dice.chance(0.5) && this.#remove(container),
      () => container && this.#attachNic(dice, container),
      () => container && this.#detachNic(dice, container),
      () => container && disk && this.#attachDisk(container, disk),
      () => container && disk && this.#attachDisk(container, disk),
      () => disk && this.#detachDisk(disk),
      () => this.#createDisk(free.disk),
      () => this.#createDisk(free.disk),
      () => disk && this.#grow(disk),
      () => disk && this.#snapshot(disk),
      () => disk && this.#dropSnapshot(dice, disk),
      () => disk && this.#restore(dice, disk, free.disk),
      () => disk && this.#migrate(disk),
      () => disk && dice.chance(0.5) && this.#removeDisk(disk),
    ].map((draw) => () => draw() || null)
    return dice.one(draws)()
  }

  #create(dice: Dice, slot: string): Command | null {
    if (this.containers.has(slot)) return null
    const subnets = dice.chance(0.6) ? [dice.one(this.subnets).id] : []
    const start = dice.chance(0.8)
    return {
      words: `create ${slot}`,
      uses: [slot],
      method: 'POST',
      path: '/api/v1/containers',
      body: {
        name: `${slot}-${newId().slice(-6)}`,
        image: 'busybox',
        command: ['sleep', '36000'],
        cpu_cores: 0.1,
        memory_mib: 16,
        start,
        nics: subnets.map((subnet_id) => ({ subnet_id })),
      },
      made: ({ id }) => `/api/v1/containers/${String(id)}`,
      apply: ({ id }) => {
        const made = { slot, id: String(id), running: start, memory_mib: 16, subnets, disks: new Map() }
        this.containers.set(slot, made)
      },
    }
  }

  #startOrStop(container: ModelContainer): Command {
    const verb = container.running ? 'stop' : 'start'
    return {
      ...this.#on(container, verb, 'POST', `/${verb}`),
      ...(verb === 'stop' ? { body: { grace_sec: 0 } } : {}),
      apply: () => {
        container.running = !container.running
      },
    }
  }

  #resize(dice: Dice, container: ModelContainer): Command {
    const memory_mib = 16 + dice.number(16)
    return {
      ...this.#on(container, 'update', 'PUT', ''),
      body: { memory_mib },
      apply: () => {
        container.memory_mib = memory_mib
      },
    }
  }

  #move(container: ModelContainer): Command {
    return { ...this.#on(container, 'reschedule', 'POST', '/reschedule'), body: { grace_sec: 0 } }
  }

  #remove(container: ModelContainer): Command {
    return {
      ...this.#on(container, 'delete', 'DELETE', ''),
      apply: () => {
        this.containers.delete(container.slot)
        for (const slot of container.disks.keys()) this.#disk(slot).on = null
      },
    }
  }

  #attachNic(dice: Dice, container: ModelContainer): Command | null {
    const subnet = dice.one(this.subnets)
    const strange = container.subnets.some((id) => this.vpcOf(id) !== subnet.vpc)
    if (container.subnets.length >= 3) return null
    return {
      ...this.#on(container, `attach a NIC of ${subnet.id.slice(-4)} to`, 'POST', '/nics'),
      body: { subnet_id: subnet.id },
      ...(strange ? { refused: 409 } : {}),
      apply: () => void container.subnets.push(subnet.id),
    }
  }

  #detachNic(dice: Dice, container: ModelContainer): Command | null {
    if (container.subnets.length === 0) return null
    const subnet = dice.one(container.subnets)
    const nic = this.nicsOf.get(container.id)?.find(({ subnet_id }) => subnet_id === subnet)
    if (!nic) return null
    return {
      ...this.#on(container, 'detach a NIC of', 'DELETE', `/nics/${nic.id}`),
      apply: () => void container.subnets.splice(container.subnets.indexOf(subnet), 1),
    }
  }

  #attachDisk(container: ModelContainer, disk: ModelDisk): Command {
    const apart = this.hostOf.get(container.id) !== this.hostOf.get(disk.id)
    return {
      ...this.#on(container, `attach ${disk.slot} to`, 'POST', '/disks'),
      uses: [...this.#slotsOf(container), disk.slot],
      body: { disk_id: disk.id, mount_path: diskPath(disk.slot) },
      ...(disk.on !== null || apart ? { refused: 409 } : {}),
      apply: () => {
        disk.on = container.slot
        container.disks.set(disk.slot, diskPath(disk.slot))
      },
    }
  }

  #detachDisk(disk: ModelDisk): Command | null {
    const container = this.containers.get(disk.on ?? '')
    if (!container) return null
    return {
      ...this.#on(container, `detach ${disk.slot} of`, 'DELETE', `/disks/${disk.id}`),
      apply: () => {
        disk.on = null
        container.disks.delete(disk.slot)
      },
    }
  }

  #createDisk(slot: string): Command | null {
    if (this.disks.has(slot)) return null
    return {
      words: `create ${slot}`,
      uses: [slot],
      method: 'POST',
      path: '/api/v1/disks',
      body: { name: `${slot}-${newId().slice(-6)}`, size_gib: 1 },
      made: ({ id }) => `/api/v1/disks/${String(id)}`,
      apply: ({ id }) => this.#addDisk(slot, String(id), 1, null),
    }
  }

  #addDisk(slot: string, id: string, gib: number, mark: string | null): void {
    this.disks.set(slot, { slot, id, gib, mark, snapshots: new Map(), on: null })
  }

  #grow(disk: ModelDisk): Command | null {
    if (disk.gib >= 3) return null
    return {
      ...this.#onDisk(disk, 'grow', 'PUT', ''),
      body: { size_gib: disk.gib + 1 },
      apply: () => {
        disk.gib += 1
      },
    }
  }

  #snapshot(disk: ModelDisk): Command | null {
    if (disk.snapshots.size >= 2) return null
    const name = `s-${newId().slice(-8)}`
    return {
      ...this.#onDisk(disk, 'snapshot', 'POST', '/snapshots'),
      body: { name },
      apply: () => void disk.snapshots.set(name, { mark: disk.mark, gib: disk.gib }),
    }
  }

  #dropSnapshot(dice: Dice, disk: ModelDisk): Command | null {
    if (disk.snapshots.size === 0) return null
    const name = dice.one([...disk.snapshots.keys()])
    return {
      ...this.#onDisk(disk, 'delete a snapshot of', 'DELETE', `/snapshots/${name}`),
      apply: () => void disk.snapshots.delete(name),
    }
  }

  #restore(dice: Dice, disk: ModelDisk, slot: string): Command | null {
    if (disk.snapshots.size === 0 || this.disks.has(slot)) return null
    const [name, { mark, gib }] = dice.one([...disk.snapshots])
    const command = this.#onDisk(disk, `restore into ${slot} from`, 'POST', `/snapshots/${name}/restore`)
    return {
      ...command,
      uses: [...command.uses, slot],
      made: (body) => `/api/v1/disks/${newDisk(body)}`,
      apply: (body) => this.#addDisk(slot, newDisk(body), gib, mark),
    }
  }

  #migrate(disk: ModelDisk): Command | null {
    const container = this.containers.get(disk.on ?? '')
    if (container && !container.running) return null // allowed, but it would also move the container
    return {
      ...this.#onDisk(disk, 'migrate', 'POST', '/migrate'),
      body: {},
      ...(container ? { refused: 409 } : {}),
    }
  }

  #removeDisk(disk: ModelDisk): Command {
    return {
      ...this.#onDisk(disk, 'delete', 'DELETE', ''),
      ...(disk.on === null ? {} : { refused: 409 }),
      apply: () => void this.disks.delete(disk.slot),
    }
  }

  #on(container: ModelContainer, words: string, method: Command['method'], path: string): Command {
    const uses = this.#slotsOf(container)
    return {
      words: `${words} ${container.slot}`,
      uses,
      method,
      path: `/api/v1/containers/${container.id}${path}`,
    }
  }

  #onDisk(disk: ModelDisk, words: string, method: Command['method'], path: string): Command {
    const uses = disk.on === null ? [disk.slot] : [disk.slot, disk.on]
    return { words: `${words} ${disk.slot}`, uses, method, path: `/api/v1/disks/${disk.id}${path}` }
  }

  #slotsOf = (container: ModelContainer): string[] => [container.slot, ...container.disks.keys()]

  #disk(slot: string): ModelDisk {
    const disk = this.disks.get(slot)
    if (!disk) throw new Error(`no disk ${slot}`)
    return disk
  }

  vpcOf = (subnetId: string): string | undefined => this.subnets.find(({ id }) => id === subnetId)?.vpc

  /** The recorded NICs, from the last look. */
  readonly nicsOf = new Map<string, { id: string; subnet_id: string; ip_address: string }[]>()
}

const newDisk = (body: Json): string => String(body['new_disk_uuid'] ?? body['new_disk_id'])

async function created(client: Client, path: string, body: Json): Promise<string> {
  const answer = await client.ask('POST', path, body)
  if (answer.status !== 201 && answer.status !== 202)
    throw new Error(`POST ${path} -> ${answer.status} ${JSON.stringify(answer.body)}`)
  return String(answer.body['id'])
}

/** The IPv4 addresses in a process's network. */
export async function addressesIn(pid: number): Promise<string[]> {
  const links = JSON.parse(await runIn({ pid }, 'ip', ['-j', '-4', 'address', 'show'])) as {
    addr_info: { local: string }[]
  }[]
  return links.flatMap(({ addr_info }) => addr_info.map(({ local }) => local))
}
