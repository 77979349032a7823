import { createHash } from 'node:crypto'

// Names of namespaces and links are made of ids: the kernel allows 15 characters. What they are for is written on each
// link (its alias), so that a person, and the search for orphans, can read it.

/** Letters and digits that differ when any part differs: 5 bits a character. */
function hash(length: number, ...parts: string[]): string {
  const bytes = createHash('sha256').update(parts.join('\n')).digest()
  const alphabet = 'abcdefghijklmnopqrstuvwxyz234567'
  return Array.from(bytes.subarray(0, length), (byte) => alphabet[byte & 31]).join('')
}

export type Thing = 'vpc' | 'subnet' | 'nic' | 'host'

/** How one host names its things; several hosts may share one machine. */
export class Names {
  /** Begins every name of this host's: 5 characters, so that 20 hosts of one machine clash once in 200,000 times. */
  readonly prefix: string
  readonly host: string

  constructor(host: string) {
    this.host = host
    this.prefix = `k${hash(4, 'host', host)}`
  }

  vpc = (id: string): string => `${this.prefix}v${hash(9, 'vpc', id)}`
  /** The host's end of a VPC's way out. */
  uplink = (vpcId: string): string => `${this.prefix}u${hash(9, 'vpc', vpcId)}`
  bridge = (subnetId: string): string => `${this.prefix}s${hash(9, 'subnet', subnetId)}`
  vxlan = (subnetId: string): string => `${this.prefix}x${hash(9, 'subnet', subnetId)}`
  nic = (id: string): string => `${this.prefix}n${hash(9, 'nic', id)}`

  /** nftables' pattern for all links of that letter. */
  all = (letter: 'u' | 's' | 'x'): string => `${this.prefix}${letter}*`

  /** The firewall's table in the host's own namespace; in a VPC's the same name serves. */
  get table(): string {
    return `keelson_${this.prefix}`
  }

  label = (kind: Thing, id: string): string => `keelson/${this.host}/${kind}/${id}`

  /** What a label of this host's says; null for another's. */
  readLabel(alias: string | undefined): { kind: Thing; id: string } | null {
    const [start, host, kind, id] = alias?.split('/') ?? []
    if (start !== 'keelson' || host !== this.host || !kind || !id) return null
    return { kind: kind as Thing, id }
  }

  /**
   * A bridge's address. It is each host's own: with one for all, the answer to a gateway's question would reach
   * whichever gateway is nearest.
   */
  gatewayMac(subnetId: string): string {
    const bytes = createHash('sha256').update(`${this.host}\n${subnetId}`).digest().subarray(0, 5)
    return `02:${bytes.toString('hex').replace(/..(?!$)/g, '$&:')}`
  }
}

/** The VPC's end of its way out: alone of that name in its namespace. */
export const uplinkInside = 'uplink'
