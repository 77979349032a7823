import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as delay } from 'node:timers/promises'
import { promisify } from 'node:util'
import { median, type Row } from './measure.ts'
import type { Stack } from './stack.ts'

const run = promisify(execFile)
const rounds = 5
const sec = 4
const pings = 200
const addresses = ['10.90.0.11', '10.90.0.12'] as const
const theirNames = ['bench-bridge-0', 'bench-bridge-1']
const theirAddresses = ['10.91.0.11', '10.91.0.12'] as const

/** From one container to another on the same host: through a subnet, and through a Docker bridge. */
export async function networks(stack: Stack): Promise<Row[]> {
  const { body: vpc } = await stack.request<{ id: string }>('POST', '/api/v1/vpcs', {
    name: 'bench-networks',
    cidr: '10.90.0.0/16',
  })
  const { body: subnet } = await stack.request<{ id: string }>('POST', '/api/v1/subnets', {
    name: 'bench-networks',
    vpc_id: vpc.id,
    cidr: '10.90.0.0/24',
  })
  const docker = async (...args: string[]): Promise<string> =>
    (await run('docker', ['-H', stack.dockerHost, ...args])).stdout.trim()
  const pidOf = async (name: string): Promise<number> =>
    Number(await docker('inspect', '--format', '{{.State.Pid}}', name))
  const command = ['busybox', 'sleep', '3600']

  const ids: string[] = []
  for (const [i, ip_address] of addresses.entries()) {
    const { id } = await stack.finish('POST', '/api/v1/containers', {
      name: `bench-subnet-${i}`,
      image: command[0],
      command: command.slice(1),
      cpu_cores: 2,
      memory_mib: 64,
      nics: [{ subnet_id: subnet.id, ip_address }],
    })
    ids.push(id)
  }
  // The platform's own containers without a subnet cannot reach each other.
  await docker('network', 'create', '--subnet', '10.91.0.0/24', 'bench')
  for (const [i, name] of theirNames.entries())
    await docker(
      'run',
      '-d',
      '--name',
      name,
      '--network',
      'bench',
      '--ip',
      theirAddresses[i] ?? '',
      ...command,
    )
  const ours = await Promise.all(ids.map((id) => pidOf(`keelson-${id}`)))
  const theirs = await Promise.all(theirNames.map(pidOf))

  const figures = { ours: [], theirs: [], oursMs: [], theirsMs: [] } as Record<string, number[]>
  for (let round = 0; round < rounds; round++) {
    figures['ours']?.push(await throughput(ours, addresses[1]))
    figures['theirs']?.push(await throughput(theirs, theirAddresses[1]))
    figures['oursMs']?.push(await roundTrip(ours, addresses[1]))
    figures['theirsMs']?.push(await roundTrip(theirs, theirAddresses[1]))
  }
  await docker('rm', '-f', ...theirNames)
  await docker('network', 'rm', 'bench')
  for (const id of ids) await stack.finish('DELETE', `/api/v1/containers/${id}`)
  await stack.finish('DELETE', `/api/v1/subnets/${subnet.id}`)
  await stack.finish('DELETE', `/api/v1/vpcs/${vpc.id}`)

  const of = (name: string): number[] => figures[name] ?? []
  const ratio = of('ours').map((figure, round) => figure / (of('theirs')[round] ?? Number.NaN))
  return [
    { what: 'container to container through a subnet, one stream', unit: 'Gbit/s', figures: of('ours') },
    { what: 'the same through Docker’s bridge', unit: 'Gbit/s', figures: of('theirs') },
    { what: 'ratio', unit: '', figures: ratio, note: '≥ 0.95' },
    { what: 'round trip through a subnet', unit: 'µs', figures: of('oursMs') },
    { what: 'the same through Docker’s bridge', unit: 'µs', figures: of('theirsMs') },
  ]
}

const from = (pid: number, program: string, ...args: string[]): [string, string[]] => [
  'nsenter',
  [`--net=/proc/${pid}/ns/net`, program, ...args],
]

/** Gbit/s, counted by the receiver. */
export async function throughput([client = 0, server = 0]: number[], address: string): Promise<number> {
  const listening = spawn(...from(server, 'iperf3', '--server', '--one-off'), { stdio: 'ignore' })
  const ended = once(listening, 'exit')
  try {
    for (let tries = 0; ; tries++) {
      try {
        const { stdout } = await run(
          ...from(client, 'iperf3', '--json', '--time', String(sec), '--client', address),
        )
        const { end } = JSON.parse(stdout) as { end: { sum_received: { bits_per_second: number } } }
        return end.sum_received.bits_per_second / 1e9
      } catch (error) {
        if (tries === 20) throw error // it should listen by now
        await delay(100)
      }
    }
  } finally {
    listening.kill()
    await ended
  }
}

/** The median round trip, in microseconds. */
export async function roundTrip([client = 0]: number[], address: string): Promise<number> {
  const args = from(client, 'busybox', 'ping', '-A', '-c', String(pings), address)
  const { stdout } = await run(...args)
  return median([...stdout.matchAll(/time=([\d.]+) ms/g)].map(([, ms]) => 1_000 * Number(ms)))
}
