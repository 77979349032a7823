import { readFile } from 'node:fs/promises'
import type { LeftOut, LoadBalancerSpec, LoadBalancerState } from '../load-balancers.ts'
import { nullIfMissing, publishText } from '../system/files.ts'
import { isIn } from './certificates.ts'
import type { Refusal } from './document.ts'
import type { BoundListener } from './listeners.ts'
import type { Place } from './places.ts'
import type { Server } from './routes.ts'

/** What was last applied. It holds no secrets: those are files of their own. */
export interface LoadBalancerRecord {
  spec: LoadBalancerSpec
  /** Part of the log's name; it changes when the load balancer is made anew. */
  engine_id: string
  created_at: string
  ports: BoundListener[]
  refused: Refusal[]
  left_out: LeftOut[]
  /** The document's version in the configuration file, and its servers. */
  version: string
  servers: Server[]
}

export async function readRecord(place: Place): Promise<LoadBalancerRecord | null> {
  const text = await readFile(place.record, 'utf8').catch(nullIfMissing)
  return text === null ? null : (JSON.parse(text) as LoadBalancerRecord)
}

/** Returns what was written: without secrets. */
export async function writeRecord(place: Place, record: LoadBalancerRecord): Promise<LoadBalancerRecord> {
  const { spec } = record
  const certificates = spec.certificates.map(({ id }) => ({ id, pem: '' }))
  const written = { ...record, spec: { ...spec, certificates } }
  await publishText(place.record, JSON.stringify(written))
  return written
}

/** The part of a state that the record has. */
export const recordedState = ({
  spec,
  engine_id,
  ports,
  refused,
  left_out,
}: LoadBalancerRecord): Omit<LoadBalancerState, 'state' | 'targets'> => ({
  id: spec.id,
  log: { engine_id, cap_mib: spec.log_cap_mib },
  ports: ports.filter(({ port }) => !isIn(left_out, 'listener', port)),
  refused,
  left_out,
})
