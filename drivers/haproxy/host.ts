import type { BigIntStats } from 'node:fs'
import { readdir, stat } from 'node:fs/promises'
import { makeNamedQueues } from '../../lib/queue.ts'
import { digest } from '../system/digest.ts'
import { nullIfMissing } from '../system/files.ts'
import type { HostPorts } from '../system/host-ports.ts'
import { AcceptedRoutes } from './accepted-routes.ts'
import type { ProxyUser } from './document.ts'
import type { Known } from './health.ts'
import { nameHostNamespace } from './host-namespace.ts'
import type { Outside } from './listeners.ts'
import { makePlaces, type Place } from './places.ts'
import { findUser } from './processes.ts'
import { type LoadBalancerRecord, readRecord, writeRecord } from './records.ts'

export interface HaproxySettings {
  /** The host that owns these load balancers. */
  hostId: string
  /** Holds configurations, certificates and logs. */
  folder: string
  /** For sockets and pid files: a short path, preferably one that is emptied at boot (`/run/…`). */
  run: string
  /** The host's ports, and its address for them. */
  ports: HostPorts
  /** The host's namespace in /run/netns; by default this process's. */
  hostNamespace?: string | null
  /** Access log beyond a load balancer's cap that may wait on the host for archiving. */
  logBacklogMib?: number
  /** Called before a load balancer is removed. If it throws, the load balancer stays. */
  beforeRemoval?: (id: string) => Promise<void>
}

/** Load balancers of a host: state shared by the parts of the driver. */
export class LoadBalancerHost {
  readonly settings: Required<HaproxySettings>
  readonly placeOf: (id: string) => Place
  /** Part of the names of kernel objects, which all hosts of this machine share. */
  readonly mark: string
  /** Calls for one load balancer run one after another. */
  readonly inTurn = makeNamedQueues()
  readonly #known = new Map<string, Known>()
  readonly #accepted = new Map<string, AcceptedRoutes>()
  readonly #records = new Map<string, { file: string; record: LoadBalancerRecord }>()
  #user: Promise<ProxyUser> | null = null

  constructor(settings: Required<HaproxySettings>) {
    this.settings = settings
    this.placeOf = makePlaces(settings.folder, settings.run)
    this.mark = digest(settings.folder, 12)
  }

  /** All ids with a folder. */
  async ids(): Promise<string[]> {
    const names = (await readdir(this.settings.folder).catch(nullIfMissing)) ?? []
    return names.filter((name) => /^[a-z0-9][a-z0-9-]{0,35}$/.test(name))
  }

  /** What was last applied: do not change it. It is read again only when its file is another. */
  async record(id: string): Promise<LoadBalancerRecord | null> {
    const place = this.placeOf(id)
    const found = await stat(place.record, { bigint: true }).catch(nullIfMissing)
    if (!found) {
      this.#records.delete(id)
      return null
    }
    const file = fileOf(found)
    const read = this.#records.get(id)
    if (read?.file === file) return read.record
    const record = await readRecord(place)
    if (record) this.#records.set(id, { file, record })
    return record
  }

  async write(record: LoadBalancerRecord): Promise<void> {
    const place = this.placeOf(record.spec.id)
    const written = await writeRecord(place, record)
    const file = fileOf(await stat(place.record, { bigint: true }))
    this.#records.set(place.id, { file, record: written })
  }

  known(id: string): Known {
    const known = this.#known.get(id) ?? new Map()
    this.#known.set(id, known)
    return known
  }

  accepted(id: string): AcceptedRoutes {
    const accepted = this.#accepted.get(id) ?? new AcceptedRoutes()
    this.#accepted.set(id, accepted)
    return accepted
  }

  forget(id: string): void {
    this.#accepted.delete(id)
    this.#known.delete(id)
    this.#records.delete(id)
  }

  user(): Promise<ProxyUser> {
    this.#user ??= findUser()
    return this.#user
  }

  async outside(): Promise<Outside> {
    const { ports, hostNamespace } = this.settings
    return { address: ports.address, namespace: hostNamespace ?? (await nameHostNamespace(this.mark)) }
  }
}

/** Which file it is: each record is written to a new one. */
const fileOf = ({ ino, size, mtimeNs }: BigIntStats): string => `${ino} ${size} ${mtimeNs}`
