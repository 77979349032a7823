import http from 'node:http'
import { once } from 'node:events'
import { text } from 'node:stream/consumers'
import { type CryptoKey, exportJWK, generateKeyPair } from 'jose'
import { Enrolled, type HostReport, PublicKey } from '../../../lib/host-protocol.ts'
import { makeSelfSigned } from '../../../lib/self-signed.ts'
import { makeInternalApi } from '../../../worker/host/internal-api.ts'
import type { Stack } from '../stack.ts'

// Simulated hosts: each is only a credential and a report.

// One address may enrol 60 hosts a minute.
const enrolmentsPerAddress = 50

export interface SimulatedHost {
  id: string
  /** Reports that these containers run on the host. Throws if they are not its own. */
  report(containerIds: string[]): Promise<void>
}

// The start time of every simulated container.
export const startedAt = new Date('2026-01-01T00:00:00.000Z')

const { certificate } = await makeSelfSigned({ name: 'host.keelson.internal', years: 1 })
const about = {
  data_plane_url: 'https://127.0.0.1:9',
  data_plane_certificate: certificate,
  address: '127.0.0.1',
  capacity: { cpu_cores: 1000, memory_mib: 1_000_000, disk_gib: 0 },
}

const reportOf = (containerIds: string[]): HostReport => ({
  ...about,
  engine: { name: 'none', version: '0' },
  underlay_address: null,
  tunnel_key: null,
  published_ports: { range: [20_000, 29_999] as const, reserved: [] },
  machines: null,
  kinds: ['container'],
  things: containerIds.map((id) => ({
    id,
    kind: 'container',
    state: 'running',
    exit_code: null,
    oom_killed: false,
    restart_count: 0,
    crash_looping: false,
    started_at: startedAt.toISOString(),
    health: 'none',
    ended_by: null,
  })),
  unseen: [],
  age_ms: 0,
})

/** Announces and enrols that many hosts, closed to instances; `from` is the number of the first. */
export async function makeHosts(stack: Stack, count: number, from = 0): Promise<SimulatedHost[]> {
  const hosts: SimulatedHost[] = []
  for (let index = from; index < from + count; index++) {
    const { body } = await stack.request<{ id: string; token: string }>('POST', '/api/v1/platform/hosts', {
      name: `bench-host-${index}`,
    })
    await stack.request('POST', `/api/v1/platform/hosts/${body.id}/cordon`)
    hosts.push(await enrolHost(stack, body.token, index))
  }
  return hosts
}

async function enrolHost(stack: Stack, token: string, index: number): Promise<SimulatedHost> {
  const { publicKey, privateKey } = await generateKeyPair('EdDSA', { crv: 'Ed25519', extractable: true })
  const enrolment = {
    ...about,
    token,
    public_key: PublicKey.strip().parse(await exportJWK(publicKey)),
    name: `bench-host-${index}`,
  }
  const asking = http.request(`${stack.api}/internal/v1/hosts/enrol`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    localAddress: `127.0.1.${1 + Math.floor(index / enrolmentsPerAddress)}`,
  })
  asking.end(JSON.stringify(enrolment))
  const [answer] = (await once(asking, 'response')) as [http.IncomingMessage]
  const said = await text(answer)
  if (answer.statusCode !== 200) throw new Error(`enrolment: ${answer.statusCode} ${said}`)
  return simulated(stack, Enrolled.parse(JSON.parse(said)).host_id, privateKey)
}

function simulated(stack: Stack, id: string, key: CryptoKey): SimulatedHost {
  const internal = makeInternalApi(stack.api, { hostId: id, key })
  return {
    id,
    async report(containerIds) {
      const { not_yours } = await internal.report(reportOf(containerIds))
      if (not_yours.length) throw new Error(`${not_yours.length} containers are not the host’s`)
    },
  }
}

/** Removes the hosts, which must be empty. */
export async function removeHosts(stack: Stack, hosts: SimulatedHost[]): Promise<void> {
  for (const { id } of hosts) await stack.request('DELETE', `/api/v1/platform/hosts/${id}`)
}
