import { accepts, begin, type By } from '../acceptance.ts'
import type { Accepted } from '../operations.ts'
import { named } from '../resources.ts'
import type { DhcpConfig } from './dhcp.ts'
import { mayHaveDhcp } from './nics.ts'
import { type SubnetDocument, subnetResource } from './subnets.ts'

// The acceptance rules for operations on subnets. A deletion has only its states and `keptBy`.

type SubnetChanges = { [Field in 'name' | 'tags' | 'nat']?: SubnetDocument[Field] | undefined }

/** Throws as `begin`, and NameTaken. */
export const acceptSubnetUpdate = (
  by: By,
  id: string,
  { name, tags, nat }: SubnetChanges,
): Promise<Accepted<SubnetDocument>> => {
  const set = {
    ...(name === undefined ? {} : { name }),
    ...(tags === undefined ? {} : { tags }),
    ...(nat === undefined ? {} : { nat }),
  }
  return named('subnet', name ?? '', () => begin(by, subnetResource, id, 'update', { set }))
}

/** Sets or replaces the DHCP config. Throws as `begin`, InvalidInput and AddressTaken. */
export const acceptDhcpConfig = (
  by: By,
  id: string,
  dhcp_config: DhcpConfig,
): Promise<Accepted<SubnetDocument>> =>
  begin(by, subnetResource, id, 'attach_dhcp', {
    set: { dhcp_config },
    reserve: (subnet) => mayHaveDhcp(subnet, dhcp_config),
  })

/** Throws as `begin`. */
export const acceptDhcpRemoval = (by: By, id: string): Promise<Accepted<SubnetDocument>> =>
  begin(by, subnetResource, id, 'detach_dhcp', { set: { dhcp_config: null } })

accepts(subnetResource, {
  verbs: { update: acceptSubnetUpdate, attach_dhcp: acceptDhcpConfig, detach_dhcp: acceptDhcpRemoval },
})
