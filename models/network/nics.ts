import { randomBytes } from 'node:crypto'
import mongoose, { Schema } from 'mongoose'
import type { InstanceKindName } from '../../lib/host-protocol.ts'
import { contains, parseCidr, toAddress, toNumber } from '../../lib/ipv4.ts'
import { NameTaken, NotFound, Problem } from '../../lib/problem.ts'
import { lockParent } from '../parents.ts'
import { documentOptions, idField, keptBy } from '../resources.ts'
import { everyTenant, tenantScoped } from '../tenant-scope.ts'
import { checkDhcpConfig, type DhcpConfig, isForMembers, isLent } from './dhcp.ts'
import { type SubnetDocument, subnetResource } from './subnets.ts'
import { vpcResource } from './vpcs.ts'

/** An instance's place in a subnet. While it is there, nobody else has its address. */
export interface NicDocument {
  _id: string
  tenant_id: string
  /** The same for all NICs of an instance. */
  vpc_id: string
  subnet_id: string
  instance_id: string
  instance_kind: string
  /** By which the others of the VPC find it. */
  instance_name: string
  mac_address: string
  ip_address: string
  /** False while it is being taken away: no host attaches it, and its address is not yet free. */
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

/** Checked in the transaction that accepts it. Throws InvalidInput, and a 409 where a NIC has one of its addresses. */
export async function mayHaveDhcp({ _id, tenant_id, cidr, gateway_ip }: SubnetDocument, config: DhcpConfig) {
  checkDhcpConfig({ cidr, gateway_ip }, config)
  const addresses = config.static_leases.map(({ ip_address }) => ip_address)
  const taken = await Nic.find({ tenant_id, subnet_id: _id, ip_address: { $in: addresses } }).lean()
  const macOf = new Map(config.static_leases.map((lease) => [lease.ip_address, lease.mac_address]))
  const other = taken.find((nic) => macOf.get(nic.ip_address) !== nic.mac_address)
  if (other) throw new AddressTaken(other.ip_address)
}

/** Somebody has it, or it is kept for somebody. */
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

/** An instance that is to have NICs, of whichever kind. */
export interface Instance {
  id: string
  kind: InstanceKindName
  name: string
  tenant_id: string
}

export interface AskedNic {
  /** Null: one is made. */
  id: string | null
  subnet_id: string
  /** Null: the next that is free. */
  ip_address: string | null
}

/** A machine has so many slots that take one while it runs. */
const nicsAtMost: Record<InstanceKindName, number> = { container: 8, microvm: 4, vm: 4 }

/**
 * Gives an instance NICs beside those that it has, in the transaction that accepts them. Throws NotFound (a subnet),
 * InvalidInput, NameTaken, AddressTaken and other 409s.
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
 * Members of a VPC find each other by their names, whatever kind of instance they are, so its first NIC takes the name there.
 * Two at once meet in the VPC. Throws NameTaken.
 */
async function needsOwnName({ id, name, tenant_id }: Instance, vpcId: string): Promise<void> {
  await lockParent(vpcResource, tenant_id, vpcId)
  const other = { tenant_id, vpc_id: vpcId, instance_name: name, instance_id: { $ne: id } }
  const holder = await Nic.findOne(other).lean()
  if (holder) throw new NameTaken(`${holder.instance_kind} in the VPC`, name)
}

/** The one that is asked for, or the next. Two at once meet in their subnet (`lockParent`). */
async function freeAddress(subnet: SubnetDocument, asked: string | null): Promise<string> {
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
  const taken = new Set([...nics, ...leases].map(({ ip_address }) => toNumber(ip_address)))
  const isFree = (address: number) =>
    isForMembers(range, gateway_ip, address) && !taken.has(address) && !(dhcp && isLent(dhcp, address))
  if (asked !== null) {
    if (!isFree(toNumber(asked))) throw new AddressTaken(asked)
    return asked
  }
  for (let address = range.first + 1; address < range.last; address++) {
    if (isFree(address)) return toAddress(address)
    if (dhcp && isLent(dhcp, address)) address = toNumber(dhcp.range_end ?? '0.0.0.0')
  }
  throw new Problem(409, 'subnet_full', 'The subnet is full', `${cidr} has no free address`)
}

/** Locally administered, of one interface. */
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

/** In the order in which it got them. */
export async function nicsOf(instance_id: string): Promise<NicView[]> {
  const nics = await Nic.find({ instance_id, wanted: true }).setOptions(everyTenant).sort({ _id: 1 }).lean()
  return nics.map(toNicView)
}

/** Throws NotFound where it is no NIC of this instance. */
export async function mustHaveNic(
  { tenant_id, id }: Omit<Instance, 'kind' | 'name'>,
  nicId: string,
): Promise<void> {
  const nic = await Nic.findOne({ _id: nicId, tenant_id, instance_id: id }).lean()
  if (!nic) throw new NotFound('NIC')
}

/** Whether hosts attach it. Its address is kept either way. */
export async function wantNic(id: string, wanted: boolean): Promise<void> {
  await Nic.updateOne({ _id: id }, { $set: { wanted } }).setOptions(everyTenant)
}

/** Its address is free from now on. One that is not there is success. */
export async function releaseNic(id: string): Promise<void> {
  await Nic.deleteOne({ _id: id }).setOptions(everyTenant)
}

/** All of an instance's. */
export async function releaseNics(instance_id: string): Promise<void> {
  await Nic.deleteMany({ instance_id }).setOptions(everyTenant)
}
