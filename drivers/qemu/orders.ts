import { CommandFailed, EngineUnavailable } from '../errors.ts'
import { linksOf } from '../linux/commands.ts'
import type { MachineNic, MachineSpec } from '../machines.ts'
import type { MachineHost } from './host.ts'
import type { MachineRecord } from './records.ts'

// What the host tells a machine's agent about the machine.

/** Everything that the agent needs at start. Config variables go only this way. */
export async function orderFor(host: MachineHost, record: MachineRecord, configVars: Record<string, string>) {
  const { spec } = record
  const base = await host.images.find(record.image_digest)
  if (!base) throw new EngineUnavailable('The image’s root disk is missing')
  const { config } = base
  const command = spec.command.length > 0 || spec.entrypoint.length > 0 ? spec.command : config.command
  const argv = [...(spec.entrypoint.length > 0 ? spec.entrypoint : config.entrypoint), ...command]
  if (argv.length === 0)
    throw new CommandFailed('command_not_started', 'Neither the image nor the machine has a command', null)
  return {
    ...(await identity(spec, configVars, config.env)),
    argv,
    folder: config.folder,
    user: config.user,
    signal: config.signal,
    restart: spec.restart_policy,
    disks: spec.disks.map(({ disk_id, mount_path, read_only }) => ({
      serial: disk_id,
      path: mount_path,
      read_only,
    })),
  }
}

/** A machine's identity: what a fork must change. */
export async function identity(spec: MachineSpec, configVars: Record<string, string>, env: string[]) {
  const given = Object.entries(configVars).map(([name, value]) => `${name}=${value}`)
  const isGiven = (one: string): boolean => one.slice(0, one.indexOf('=')) in configVars
  return {
    hostname: spec.name,
    env: [...env.filter((one) => !isGiven(one)), ...given],
    nics: await Promise.all(spec.nics.map((nic) => forAgent(nic))),
    resolver: spec.network ? { server: spec.network.dns_server, domain: spec.network.search_domain } : null,
  }
}

/** Adds the tap's MTU, which is that of the network between the hosts. */
export async function forAgent(nic: MachineNic) {
  const mtu = (await linksOf(nic.namespace)).get(nic.device)?.mtu ?? 0
  return {
    mac: nic.mac_address,
    address: nic.ip_address,
    prefix: nic.prefix_length,
    gateway: nic.gateway_ip,
    default_route: nic.default_route,
    mtu,
  }
}
