import type { HostReport } from '../../lib/host-protocol.ts'
import { makeSelfSigned } from '../../lib/self-signed.ts'

const { certificate } = await makeSelfSigned({ name: 'host.keelson.internal', years: 1 })

/** The report of a host that has nothing. */
export const emptyReport = (over: Partial<HostReport> = {}): HostReport => ({
  data_plane_url: 'https://127.0.0.1:9',
  data_plane_certificate: certificate,
  address: '127.0.0.1',
  capacity: { cpu_cores: 1, memory_mib: 1, disk_gib: 0 },
  engine: { name: 'none', version: '1' },
  underlay_address: null,
  tunnel_key: null,
  published_ports: { range: [20_000, 29_999], reserved: [] },
  machines: null,
  kinds: [],
  things: [],
  unseen: [],
  age_ms: 0,
  ...over,
})
