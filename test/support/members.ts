import type Docker from 'dockerode'
import { batch, runIn } from '../../drivers/linux/commands.ts'
import type { ContainerBody } from './client.ts'
import { eventually } from './eventually.ts'
import { allHosts } from './hosts.ts'
import { execInside } from './inside.ts'
import * as seen from './networks.ts'

// What a container sees of its VPC, from inside, through its host's engine and not through the platform.

export type Somewhere = Pick<ContainerBody, 'id' | 'host_id'>

/** The engine's container on the recorded host; a lost host's engine may have a second one. Throws if there is none. */
export async function containerOf({ id, host_id }: Somewhere): Promise<Docker.Container> {
  const host = (await allHosts()).find((one) => one.id === host_id)
  const label = [`keelson.resource=${id}`, 'keelson.kind=container']
  const [found] = (await host?.engine.listContainers({ all: true, filters: { label } })) ?? []
  if (!host || !found) throw new Error(`no container of ${id} on host ${host_id}`)
  return host.engine.getContainer(found.Id)
}

/** A process of the container, in its network. */
export const placeOf = async (member: Somewhere): Promise<{ pid: number }> => ({
  pid: (await (await containerOf(member)).inspect()).State.Pid,
})

/** The output of a command in the container. */
export async function inside(member: Somewhere, command: string[]): Promise<string> {
  return (await execInside(await containerOf(member), command)).output
}

/** The addresses that the container's own resolver returns for a name. */
export async function resolves(member: Somewhere, name: string): Promise<string[]> {
  const answer = await inside(member, ['nslookup', name])
  return [...answer.matchAll(/^Name:.*\r?\nAddress(?: \d+)?: ([\d.]+)/gm)].flatMap(
    ([, address]) => address ?? [],
  )
}

/** The name of the container that answers at this address on port 80. */
export const get = async (from: Somewhere, address: string): Promise<string | null> =>
  seen.get(await placeOf(from), address)

/**
 * Resolves when the member finds another by its name, and reaches it there. A host that was not told of the other in time
 * learns of it with its next report.
 */
export async function finds(from: Somewhere, { name }: { name: string }, address: string): Promise<void> {
  await eventually(async () => String(await resolves(from, name)) === address)
  await eventually(async () => (await get(from, address)) === name)
}

/** Those of the addresses that answer a request or a ping. */
export const reaches = async (from: Somewhere, addresses: string[]): Promise<string[]> =>
  seen.reached(await placeOf(from), addresses)

/** The address that the subnet's DHCP gives to its interface, or to an extra one with this MAC address. */
export async function leaseOf(member: Somewhere, mac?: string): Promise<string | null> {
  const place = await placeOf(member)
  if (mac) {
    const beside = [
      'link',
      'add',
      'lent',
      'link',
      'eth0',
      'address',
      mac,
      'type',
      'macvlan',
      'mode',
      'bridge',
    ]
    await batch('ip', place, [beside, ['link', 'set', 'lent', 'up']])
  }
  const ask = [
    'udhcpc',
    '-i',
    mac ? 'lent' : 'eth0',
    '-f',
    '-n',
    '-q',
    '-t',
    '5',
    '-T',
    '2',
    '-s',
    '/bin/true',
  ]
  try {
    const said = await runIn(place, 'sh', ['-c', `busybox ${ask.join(' ')} 2>&1`])
    return /lease of ([\d.]+) obtained/.exec(said)?.[1] ?? null
  } finally {
    if (mac) await batch('ip', place, [['link', 'delete', 'lent']])
  }
}
