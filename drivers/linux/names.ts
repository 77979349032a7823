import { createHash } from 'node:crypto'

// Names of namespaces and links are hashes of ids, because the kernel allows 15 characters. Each link's alias says
// what it is for, for operators and for finding orphans.

/** Letters and digits that differ if any part differs: 5 bits per character. */
function hash(length: number, ...parts: string[]): string {
  const bytes = createHash('sha256').update(parts.join('\n')).digest()
  const alphabet = 'abcdefghijklmnopqrstuvwxyz234567'
  return Array.from(bytes.subarray(0, length), (byte) => alphabet[byte & 31]).join('')
}

export type Thing = 'vpc' | 'subnet' | 'nic' | 'path' | 'host'

/** Names of one host's things. Several hosts may share a machine. */
export class Names {
  /** The prefix of all names of this host: 5 characters, so 20 hosts on one machine collide once in 200,000 cases. */
  readonly prefix: string
  readonly host: string

  constructor(host: string) {
    this.host = host
    this.prefix = `k${hash(4, 'host', host)}`
  }

  vpc = (id: string): string => `${this.prefix}v${hash(9, 'vpc', id)}`
  /** The host's end of a VPC's uplink. */
  uplink = (vpcId: string): string => `${this.prefix}u${hash(9, 'vpc', vpcId)}`
  bridge = (subnetId: string): string => `${this.prefix}s${hash(9, 'subnet', subnetId)}`
  vxlan = (subnetId: string): string => `${this.prefix}x${hash(9, 'subnet', subnetId)}`
  nic = (id: string): string => `${this.prefix}n${hash(9, 'nic', id)}`

  /** The tunnel to other hosts. */
  get tunnel(): string {
    return `${this.prefix}t`
  }

  /** The namespace of a path. */
  path = (id: string): string => `${this.prefix}p${hash(9, 'path', id)}`

  /** An nftables pattern for all links with that letter. */
  all = (letter: 'u' | 's' | 'x'): string => `${this.prefix}${letter}*`

  /** The firewall table in the host's namespace, and in each VPC's. */
  get table(): string {
    return `keelson_${this.prefix}`
  }

  label = (kind: Thing, id: string): string => `keelson/${this.host}/${kind}/${id}`

  /** Parses a label of this host; null for another host's. */
  readLabel(alias: string | undefined): { kind: Thing; id: string } | null {
    const [start, host, kind, id] = alias?.split('/') ?? []
    if (start !== 'keelson' || host !== this.host || !kind || !id) return null
    return { kind: kind as Thing, id }
  }

  /**
   * A bridge's MAC address, different on each host: with a shared one, the answer to a gateway's ARP request would
   * reach the nearest gateway.
   */
  gatewayMac(subnetId: string): string {
    const bytes = createHash('sha256').update(`${this.host}\n${subnetId}`).digest().subarray(0, 5)
    return `02:${bytes.toString('hex').replace(/..(?!$)/g, '$&:')}`
  }
}

/** The VPC's end of its uplink. The name is unique in its namespace. */
export const uplinkInside = 'uplink'
