import { randomUUID } from 'node:crypto'
import { mkdir, readFile, rename, stat, writeFile } from 'node:fs/promises'
import { EngineRefused, EngineUnavailable, PortInUse } from '../errors.ts'
import { namespaceFile } from '../linux/commands.ts'
import { isNamespace } from '../linux/namespaces.ts'
import type { LoadBalancerSpec } from '../load-balancers.ts'
import { sync } from '../system/files.ts'
import { dropOthers } from './certificates.ts'
import { carryOut, keepHealth, serverCommands } from './changes.ts'
import { accepted } from './check.ts'
import type { Document } from './document.ts'
import type { LoadBalancerHost } from './host.ts'
import { startReader, writeLogSettings } from './logs.ts'
import type { Place } from './places.ts'
import { choosePorts } from './ports.ts'
import { AddressInUse, findMaster, reload, runningVersion, startProcess } from './processes.ts'
import type { LoadBalancerRecord } from './records.ts'

// Brings a load balancer to its description. The configuration's file is written first, then its record, then the
// process follows, which says its version: a call that is repeated after a crash sees from it what is missing.

const tries = 5

/** See LoadBalancerEngine.apply. Must run in the load balancer's turn. */
export async function applySpec(host: LoadBalancerHost, spec: LoadBalancerSpec): Promise<void> {
  const place = host.placeOf(spec.id)
  if (!(await isNamespace(spec.namespace)))
    throw new EngineUnavailable('The load balancer’s network is not on this host')
  const before = await host.record(spec.id)
  await mkdir(place.folder, { recursive: true, mode: 0o700 })
  const outside = await host.outside()
  const user = await host.user()
  const pid = await masterIn(place, spec.namespace)
  const avoid = new Set<number>()
  const known = host.accepted(spec.id)

  for (let attempt = 0; attempt < tries; attempt++) {
    const had = before?.ports ?? []
    const held = new Set(pid === null ? [] : had.map(({ host_port }) => host_port))
    const ports = await choosePorts(spec, { had, held, avoid, hostPorts: host.settings.ports, outside })
    const document = await accepted({ spec, place, outside, ports, user }, known)
    const record: LoadBalancerRecord = {
      spec,
      engine_id: before?.engine_id ?? randomUUID(),
      created_at: before?.created_at ?? new Date().toISOString(),
      ports,
      refused: document.refused,
      left_out: document.left_out,
      version: document.version,
      servers: document.servers,
    }
    try {
      if (pid === null) await begin(host, place, record)
      else await change(host, place, document, { before, record, master: pid })
    } catch (error) {
      known.forget() // the next try checks everything
      if (!(error instanceof AddressInUse)) throw error
      if (spec.listeners.some(({ host_port }) => host_port === error.port))
        throw new PortInUse(error.port, error)
      avoid.add(error.port)
      continue
    }
    await dropOthers(place, document.files)
    return
  }
  throw new PortInUse(null)
}

/** The running master, if it is in this namespace: after a boot or a repair, one of the same name may be another. */
export async function masterIn(place: Place, namespace: string): Promise<number | null> {
  const pid = await findMaster(place)
  if (pid === null) return null
  const files = [`/proc/${pid}/ns/net`, namespaceFile(namespace)]
  const [its, wanted] = await Promise.all(files.map((file) => stat(file).catch(() => null)))
  return its && wanted && its.ino === wanted.ino ? pid : null
}

async function begin(host: LoadBalancerHost, place: Place, record: LoadBalancerRecord): Promise<void> {
  await takeCandidate(place)
  await host.write(record)
  await startFromFile(host, place, record)
}

/** Starts the process from the configuration in its file, with the reader of its log. */
export async function startFromFile(
  host: LoadBalancerHost,
  place: Place,
  record: LoadBalancerRecord,
): Promise<void> {
  await mkdir(place.run, { recursive: true, mode: 0o700 })
  await writeLogSettings(place, record, host.settings.logBacklogMib)
  await startReader(host.settings)
  await startProcess(place, { mark: host.mark, namespace: record.spec.namespace })
}

async function change(
  host: LoadBalancerHost,
  place: Place,
  document: Document,
  {
    before,
    record,
    master,
  }: { before: LoadBalancerRecord | null; record: LoadBalancerRecord; master: number },
): Promise<void> {
  await writeLogSettings(place, record, host.settings.logBacklogMib)
  await startReader(host.settings)
  const running = await runningVersion(place)
  if (before && running === document.version && before.version === document.version) {
    await takeCandidate(place)
    await carryOut(place, serverCommands(before.servers, document.servers))
    await host.write(record)
    return
  }
  const former = await readFile(place.config)
  await keepHealth(place, document.servers, record.spec.health_check.healthy_after)
  await takeCandidate(place)
  await host.write(record)
  try {
    await reload(place, master, document.version)
  } catch (error) {
    // What does not run must not be what the next start takes.
    await writeFile(place.config, former)
    throw error
  }
}

async function takeCandidate(place: Place): Promise<void> {
  await sync(place.candidate)
  await rename(place.candidate, place.config)
}

/** Refuses what is no description of a load balancer at all. */
export function mustBeWhole(spec: LoadBalancerSpec): void {
  const ids = spec.routes.map(({ id }) => id)
  if (new Set(ids).size < ids.length) throw new EngineRefused('Two routes have the same id')
}
