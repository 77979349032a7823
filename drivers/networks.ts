/**
 * A subnet as one host needs to know it, whole: the driver brings the host to it from whatever is there. A VPC has no
 * description of its own: it is on a host as long as one of its subnets is.
 *
 * A host with a member of a VPC has all the VPC's subnets, those without a member here too: it routes between them
 * itself, and a packet crosses to another host inside the subnet that it goes to.
 */
export interface SubnetSpec {
  id: string
  vpc_id: string
  tenant_id: string
  /** IPv4. The subnets of one VPC do not overlap; those of others may be the same. */
  cidr: string
  /** On every host with this subnet: a member's gateway is always on its own host. */
  gateway_ip: string
  /** Whether members reach the outside, by their host's address. */
  nat: boolean
  /** The subnet's number between the hosts (VXLAN), 1 to 16777215: one subnet's alone. */
  vni: number
  /** Underlay addresses of the other hosts that have this subnet. */
  peers: string[]
  /** Null: members get their addresses with the defaults, and no address is lent to strangers. */
  dhcp: DhcpOptions | null
  /** All NICs of the subnet, on whichever host. Gateways know them from here, and DHCP gives them these addresses. */
  hosts: SubnetHost[]
  /** What the subnet's resolver, which is its gateway, answers; each with and without the domain. Of all the VPC. */
  names: { name: string; ip_address: string }[]
}

export interface SubnetHost {
  mac_address: string
  ip_address: string
}

export interface DhcpOptions {
  /**
   * Lent to NICs that nobody listed. Each host lends by itself, and its lenders are known to it alone: give the range
   * to one host, or each a part; null lends nothing.
   */
  range: { start: string; end: string } | null
  lease_time_sec: number
  /** Asked for what is not a member's name; empty: the host's own resolvers, if the subnet has `nat`. */
  dns_servers: string[]
  domain_name: string
  static_leases: SubnetHost[]
}

export interface NicSpec {
  id: string
  subnet_id: string
  mac_address: string
  ip_address: string
  /** One of an instance's NICs has it. Other subnets of the VPC go by it too. */
  default_route: boolean
  /**
   * Into the network namespace of a process (an instance's pause container), as `eth0` or the next that is free there,
   * with its address; or a tap on the subnet's bridge, for a VM that asks for its address by DHCP. What a process reads
   * as its resolver is not the driver's: a pause container is made with `--dns` and the subnet's gateway.
   */
  into: { pid: number } | 'tap'
}

export interface AttachedNic {
  /** The namespace below /run/netns that has the bridge's end; QEMU is started in it. */
  namespace: string
  /** The tap's name there; the interface's name in the process's own namespace otherwise. */
  device: string
}

/** Something of the driver's making, and what it was made for. */
export interface NetworkThing {
  kind: 'namespace' | 'link' | 'process' | 'rules' | 'file'
  /** As the machine knows it: a namespace's or link's name, a pid, a table, a path. */
  name: string
  of: { kind: 'vpc' | 'subnet' | 'nic' | 'host'; id: string | null }
}

/**
 * VPCs and subnets of one host, and the NICs of its instances. All calls are idempotent, bring about the whole of what
 * they are asked for, and may be killed anywhere: asking again mends what was left.
 *
 * Members reach each other inside their VPC, and the outside where their subnet has `nat`. They reach no other VPC,
 * no address of their host, and nothing of the hosts' own networks.
 *
 * Throws EngineRefused (the description is wrong), SubnetNotOnHost, HostNotEquipped, NotPermitted, NetworkFailed.
 */
export interface NetworkDriver {
  /** Changes only what differs; connections go on. */
  applySubnet(spec: SubnetSpec): Promise<void>
  /** With the NICs that are in it; with the VPC's last subnet on this host all that the VPC has here. */
  removeSubnet(id: string): Promise<void>
  /** Live; a NIC that is elsewhere is moved. Its subnet has to be there. */
  attachNic(spec: NicSpec): Promise<AttachedNic>
  /** Live. Nothing to detach is success. */
  detachNic(id: string): Promise<void>
  /** As the member sees it, since it was attached; null when it is not there. */
  nicTraffic(id: string): Promise<{ rx_bytes: number; tx_bytes: number } | null>
  /** Ids of what it was asked for and not to take away again, whether that came to its end or not. Asks no program. */
  known(): Promise<{ subnets: string[]; nics: string[] }>
  /** All of the driver's making on this host, whatever a killed process left included. */
  list(): Promise<NetworkThing[]>
}
