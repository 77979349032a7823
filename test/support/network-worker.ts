import { type LinuxNetworkSettings, makeLinuxNetworks } from '../../drivers/linux/networks.ts'
import type { NicSpec, SubnetSpec } from '../../drivers/networks.ts'

// Makes and removes networks until it is killed: `node network-worker.ts ORDERS`.

const { settings, subnets, nics } = JSON.parse(process.argv[2] ?? '') as {
  settings: LinuxNetworkSettings
  subnets: SubnetSpec[]
  nics: NicSpec[]
}
const networks = makeLinuxNetworks(settings)
console.log('begins')
for (;;) {
  for (const subnet of subnets) await networks.applySubnet(subnet)
  for (const nic of nics) await networks.attachNic(nic)
  for (const { id } of subnets) await networks.removeSubnet(id)
}
