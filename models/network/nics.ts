import { randomBytes } from 'node:crypto'
import mongoose, { Schema } from 'mongoose'
import type { PlacedKindName } from '../../lib/host-protocol.ts'
import { contains, parseCidr, toAddress, toNumber } from '../../lib/ipv4.ts'
import { NameTaken, NotFound, Problem } from '../../lib/problem.ts'
import { needSameManager } from '../managed.ts'
import { lockParent } from '../parents.ts'
import { documentOptions, idField, keptBy } from '../resources.ts'
import { everyTenant, tenantScoped } from '../tenant-scope.ts'
import { checkDhcpConfig, type DhcpConfig, isForMembers, isLent } from './dhcp.ts'
import { type SubnetDocument, subnetResource } from './subnets.ts'
import { vpcResource } from './vpcs.ts'

/** An instance's NIC in a subnet. No other NIC has its address while the record exists. */
export interface NicDocument {
  _id: string
  tenant_id: string
  /** The same for all NICs of an instance. */
  vpc_id: string
  subnet_id: string
  instance_id: string
  instance_kind: string
  /** The name at which other members of the VPC find the instance. */
  instance_name: string
  mac_address: string
  ip_address: string
  /** False while it is being removed: no host attaches it, and its address is still taken. */
  wanted: boolean
  created_at: Date
  updated_at: Date
}

const schema = new Schema<NicDocument>(
  {
    _id: idField,
    tenant_id: { type: String, required: true },
    vpc_id: { type: String, required: true },
    subnet_id: { type: String, required: true },
    instance_id: { type: String, required: true },
    instance_kind: { type: String, required: true },
    instance_name: { type: String, required: true },
    mac_address: { type: String, required: true },
    ip_address: { type: String, required: true },
    wanted: { type: Boolean, default: true },
  },
  { ...documentOptions, collection: 'nics' },
)
tenantScoped(schema)
schema.index({ subnet_id: 1, ip_address: 1 }, { unique: true })
schema.index({ mac_address: 1 }, { unique: true })
schema.index({ instance_id: 1 })
schema.index({ vpc_id: 1 })
export const Nic = mongoose.model<NicDocument>('Nic', schema)

keptBy(subnetResource, async ({ _id, tenant_id }) => {
  const nics = await Nic.countDocuments({ tenant_id, subnet_id: _id })
  if (nics) throw new Problem(409, 'subnet_in_use', 'The subnet is in use', `The subnet has ${nics} NICs`)
})

/**
 * Checks a DHCP config, in the transaction that accepts it. Throws InvalidInput, and AddressTaken if a NIC has the
 * address of a static lease for another MAC address.
 */
export async function mayHaveDhcp({ _id, tenant_id, cidr, gateway_ip }: SubnetDocument, config: DhcpConfig) {
  checkDhcpConfig({ cidr, gateway_ip }, config)
  const addresses = config.static_leases.map(({ ip_address }) => ip_address)
  const taken = await Nic.find({ tenant_id, subnet_id: _id, ip_address: { $in: addresses } }).lean()
  const macOf = new Map(config.static_leases.map((lease) => [lease.ip_address, lease.mac_address]))
  const other = taken.find((nic) => macOf.get(nic.ip_address) !== nic.mac_address)
  if (other) throw new AddressTaken(other.ip_address)
}

/** The address is in use or reserved. */
export class AddressTaken extends Problem {
  constructor(address: string) {
    super(409, 'address_taken', 'The address is taken', `${address} is in use or reserved`)
  }
}

export interface NicView {
  id: string
  subnet_id: string
  mac_address: string
  ip_address: string
}

/** An instance of any kind, or a replica of a load balancer, that gets NICs. */
export interface Instance {
  id: string
  kind: PlacedKindName
  name: string
  tenant_id: string
  managed_by: string | null
  /** Further members that may have its name: the other replicas of a load balancer. */
  namesakes?: string[]
}

export interface AskedNic {
  /** Null: a new id. */
  id: string | null
  subnet_id: string
  /** Null: the next free address. */
  ip_address: string | null
}

/** The most NICs per instance. A machine has a fixed number of slots for NICs that are attached while it runs. */
const nicsAtMost: Record<PlacedKindName, number> = {
  container: 8,
  microvm: 4,
  vm: 4,
  load_balancer: 1,
  machine: 1,
  vm_machine: 1,
  runner: 0,
}

/**
 * Adds NICs to an instance, in the transaction that accepts them. Returns all its NICs. Throws NotFound (a subnet),
 * InvalidInput, NameTaken, AddressTaken, ManagedResource and other 409s.
 */
export async function takeNics(instance: Instance, asked: AskedNic[]): Promise<NicView[]> {
  const { tenant_id } = instance
  const its = await Nic.find({ tenant_id, instance_id: instance.id }).sort({ _id: 1 }).lean()
  const most = nicsAtMost[instance.kind]
  if (its.length + asked.length > most) {
    throw new Problem(
      409,
      'too_many_nics',
      'Too many NICs',
      `A ${instance.kind} can have at most ${most} NICs`,
    )
  }
  let vpcId = its[0]?.vpc_id ?? null
  for (const { id, subnet_id, ip_address } of asked) {
    const subnet = await lockParent(subnetResource, tenant_id, subnet_id)
    needSameManager('subnet', subnet, instance)
    if (vpcId === null) {
      vpcId = subnet.vpc_id
      await needsOwnName(instance, vpcId)
    }
    if (subnet.vpc_id !== vpcId) {
      const detail = 'All NICs of an instance must be in one VPC'
      throw new Problem(409, 'other_vpc', 'The subnet belongs to another VPC', detail)
    }
    const nic = new Nic({
      ...(id === null ? {} : { _id: id }),
      tenant_id,
      vpc_id: subnet.vpc_id,
      subnet_id,
      instance_id: instance.id,
      instance_kind: instance.kind,
      instance_name: instance.name,
      mac_address: newMacAddress(),
      ip_address: await freeAddress(subnet, ip_address),
    })
    its.push((await nic.save()).toObject())
  }
  return its.map(toNicView)
}

/**
 * Checks that the name is unique among the members of a VPC, of every kind: they find each other by name. The lock on
 * the VPC serializes concurrent calls. Throws NameTaken.
 */
async function needsOwnName({ id, name, tenant_id, namesakes = [] }: Instance, vpcId: string): Promise<void> {
  await lockParent(vpcResource, tenant_id, vpcId)
  const other = { tenant_id, vpc_id: vpcId, instance_name: name, instance_id: { $nin: [id, ...namesakes] } }
  const holder = await Nic.findOne({ ...other, instance_kind: { $ne: pathKind } }).lean()
  if (holder) throw new NameTaken(`${holder.instance_kind} in the VPC`, name)
}

/** The kind of a NIC at an end of a path (paths.ts). */
export const pathKind = 'path'

/**
 * Takes an address of a subnet for an end of a path: the last that is free, so that the first ones stay for members, and
 * none of `except`. Throws NotFound (the subnet), `subnet_full`.
 */
export async function takePathNic(
  { id, tenant_id }: { id: string; tenant_id: string },
  subnet_id: string,
  except: string[],
): Promise<NicView> {
  const subnet = await lockParent(subnetResource, tenant_id, subnet_id)
  const nic = new Nic({
    tenant_id,
    vpc_id: subnet.vpc_id,
    subnet_id,
    instance_id: id,
    instance_kind: pathKind,
    instance_name: pathKind,
    mac_address: newMacAddress(),
    ip_address: await freeAddress(subnet, null, { from: 'last', except }),
  })
  return toNicView((await nic.save()).toObject())
}

/**
 * The requested address if it is free, or the next free one. The caller holds the lock on the subnet (`lockParent`).
 */
async function freeAddress(
  subnet: SubnetDocument,
  asked: string | null,
  { from = 'first', except = [] }: { from?: 'first' | 'last'; except?: string[] } = {},
): Promise<string> {
  const { tenant_id, _id, cidr, gateway_ip, dhcp_config: dhcp } = subnet
  const range = parseCidr(cidr)
  if (!range) throw new Error(`subnet ${_id} has no cidr`)
  if (asked !== null && !(contains(range, asked) && isForMembers(range, gateway_ip, toNumber(asked)))) {
    throw new Problem(
      409,
      'address_not_usable',
      'The address is not usable',
      `${asked} is not an assignable address of ${cidr}`,
    )
  }
  const nics = await Nic.find({ tenant_id, subnet_id: _id }, { ip_address: 1 }).lean()
  const leases = dhcp?.static_leases ?? []
  const used = [...nics, ...leases].map(({ ip_address }) => ip_address)
  const taken = new Set([...used, ...except].map(toNumber))
  const isFree = (address: number) =>
    isForMembers(range, gateway_ip, address) && !taken.has(address) && !(dhcp && isLent(dhcp, address))
  if (asked !== null) {
    if (!isFree(toNumber(asked))) throw new AddressTaken(asked)
    return asked
  }
  if (from === 'last') {
    for (let address = range.last - 1; address > range.first; address--) {
      if (isFree(address)) return toAddress(address)
      if (dhcp && isLent(dhcp, address)) address = toNumber(dhcp.range_start ?? '0.0.0.0')
    }
  } else {
    for (let address = range.first + 1; address < range.last; address++) {
      if (isFree(address)) return toAddress(address)
      if (dhcp && isLent(dhcp, address)) address = toNumber(dhcp.range_end ?? '0.0.0.0')
    }
  }
  throw new Problem(409, 'subnet_full', 'The subnet is full', `${cidr} has no free address`)
}

/** A random unicast MAC address, locally administered (02). */
const newMacAddress = (): string =>
  `02:${randomBytes(5)
    .toString('hex')
    .replace(/..(?!$)/g, '$&:')}`

const toNicView = ({ _id, subnet_id, mac_address, ip_address }: NicDocument): NicView => ({
  id: _id,
  subnet_id,
  mac_address,
  ip_address,
})

/** The NICs of an instance in the order of their creation, without those being removed. */
export async function nicsOf(instance_id: string): Promise<NicView[]> {
  const nics = await Nic.find({ instance_id, wanted: true }).setOptions(everyTenant).sort({ _id: 1 }).lean()
  return nics.map(toNicView)
}

/** Throws NotFound if the instance does not have the NIC. */
export async function mustHaveNic(
  { tenant_id, id }: Pick<Instance, 'tenant_id' | 'id'>,
  nicId: string,
): Promise<void> {
  const nic = await Nic.findOne({ _id: nicId, tenant_id, instance_id: id }).lean()
  if (!nic) throw new NotFound('NIC')
}

/** Sets whether hosts attach the NIC. It keeps its address either way. */
export async function wantNic(id: string, wanted: boolean): Promise<void> {
  await Nic.updateOne({ _id: id }, { $set: { wanted } }).setOptions(everyTenant)
}

/** Deletes a NIC and so frees its address. Idempotent. */
export async function releaseNic(id: string): Promise<void> {
  await Nic.deleteOne({ _id: id }).setOptions(everyTenant)
}

/** Deletes all NICs of an instance. */
export async function releaseNics(instance_id: string): Promise<void> {
  await Nic.deleteMany({ instance_id }).setOptions(everyTenant)
}
