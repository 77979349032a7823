/**
 * The complete description of a subnet for one host; the driver reconciles the host with it. A VPC has no description:
 * it exists on a host as long as one of its subnets does.
 *
 * A host with a member of a VPC has all subnets of the VPC, even those without a local member: it routes between them
 * locally, and a packet to another host travels inside its destination subnet.
 */
export interface SubnetSpec {
  id: string
  vpc_id: string
  tenant_id: string
  /** IPv4. Subnets of one VPC do not overlap; those of different VPCs may. */
  cidr: string
  /** Present on every host with this subnet: a member's gateway is always its own host. */
  gateway_ip: string
  /** Whether members reach the internet, with their host's address as source. */
  nat: boolean
  /** VXLAN network identifier, 1 to 16777215, unique to this subnet. */
  vni: number
  /** The other hosts with this subnet. */
  peers: PeerHost[]
  /** Null: members get their addresses with default options, and unknown NICs get no lease. */
  dhcp: DhcpOptions | null
  /** All NICs of the subnet, on any host. Gateways and DHCP take their addresses from this list. */
  hosts: SubnetHost[]
  /** Names of the whole VPC. The subnet's resolver, which is its gateway, answers each with and without the domain. */
  names: { name: string; ip_address: string }[]
}

export interface PeerHost {
  /** On the network between the hosts. */
  address: string
  /** The public key of its tunnel; null for a host that is set to have none. */
  tunnel_key: string | null
}

export interface SubnetHost {
  mac_address: string
  ip_address: string
}

export interface DhcpOptions {
  /**
   * Leases for NICs that are not in `hosts`. Each host keeps its own leases, so give the range to one host or split
   * it; null leases nothing.
   */
  range: { start: string; end: string } | null
  lease_time_sec: number
  /** Resolvers for names outside the VPC. If empty, the host's own resolvers, if the subnet has `nat`. */
  dns_servers: string[]
  domain_name: string
  static_leases: SubnetHost[]
}

export interface NicSpec {
  id: string
  subnet_id: string
  mac_address: string
  ip_address: string
  /** Set for one NIC of an instance. It also carries traffic to other subnets of the VPC. */
  default_route: boolean
  /**
   * `pid`: into the network namespace of a process (an instance's pause container), as `eth0` or the next free name,
   * with its address. `namespace`: the same into a namespace in /run/netns. `tap`: a tap on the subnet's bridge, for a
   * VM that gets its address by DHCP. The driver does not set the process's resolver: a pause container is created with
   * `--dns` and the subnet's gateway.
   */
  into: { pid: number } | { namespace: string } | 'tap'
}

/**
 * The way of one instance to one port of one address in another VPC. The instance finds it at an address of its own
 * subnet. Neither VPC knows the other's addresses, which may be the same ones.
 */
export interface PathSpec {
  id: string
  /** The instance's NIC on this host: only packets that come from it go this way. */
  user: { nic_id: string; ip_address: string }
  /** Where the instance finds the target: this port of the address of `near`. */
  port: number
  /** In the instance's subnet. */
  near: PathEnd
  /** In the target's subnet. The target sees its address. */
  far: PathEnd
  target: { ip_address: string; port: number }
}

export interface PathEnd extends SubnetHost {
  /** Of a NIC of its own. */
  id: string
  subnet_id: string
}

export interface AttachedNic {
  /** The namespace in /run/netns with the bridge's end; QEMU runs in it. */
  namespace: string
  /** The tap's name in `namespace`, or the interface's name in the member's namespace. */
  device: string
  /** This member had the NIC and had lost it. Never true for a tap. */
  restored: boolean
}

export interface KnownInVpc {
  id: string
  vpc_id: string
}

/** A thing the driver made, and its owner. */
export interface NetworkThing {
  kind: 'namespace' | 'link' | 'process' | 'rules' | 'file'
  /** The system's name: of a namespace, link or table, a pid, or a path. */
  name: string
  of: { kind: 'vpc' | 'subnet' | 'nic' | 'path' | 'host'; id: string | null }
}

/**
 * VPCs and subnets of one host, and the NICs of its instances. All calls are idempotent and complete: after a crash at
 * any point, a repeated call repairs what was left.
 *
 * Members reach each other inside their VPC, and the internet if their subnet has `nat`. They cannot reach another
 * VPC, an address of their host, or the hosts' networks.
 *
 * Throws EngineRefused (the description is wrong), SubnetNotOnHost, HostNotEquipped, NotPermitted, NetworkFailed.
 */
export interface NetworkDriver {
  /** Changes only what differs; connections are not interrupted. */
  applySubnet(spec: SubnetSpec): Promise<void>
  /**
   * Removes the subnet and its NICs. With the last subnet of a VPC, everything of the VPC is removed from this host.
   */
  removeSubnet(id: string): Promise<void>
  /** Live. Moves a NIC that is attached elsewhere. The subnet must be on this host. */
  attachNic(spec: NicSpec): Promise<AttachedNic>
  /** Live. Succeeds if it is not attached. */
  detachNic(id: string): Promise<void>
  /** Counters from the member's side since attachment; null if it is not attached. */
  nicTraffic(id: string): Promise<{ rx_bytes: number; tx_bytes: number } | null>
  /** Live. Both subnets must be on this host. */
  applyPath(spec: PathSpec): Promise<void>
  /** Removes the path with its NICs. Succeeds if there is none. */
  removePath(id: string): Promise<void>
  /** Whether the target takes connections that come along the path. False if there is no such path. */
  pathReaches(id: string): Promise<boolean>
  /**
   * What was applied or attached and not removed since, whether or not the call completed. The VPC is an empty string for a
   * NIC whose subnet is gone. Runs no program.
   */
  known(): Promise<{ subnets: KnownInVpc[]; nics: KnownInVpc[]; paths: string[] }>
  /** Everything the driver made on this host, including leftovers of a killed process. */
  list(): Promise<NetworkThing[]>
}
