import { writeFile } from 'node:fs/promises'
import { EngineUnavailable } from '../errors.ts'
import type { Place } from './places.ts'
import type { Server } from './routes.ts'
import { ask } from './runtime.ts'

// What changes without a reload: weights, addresses, and whether a server takes part.

const key = ({ backend, name }: Server): string => `${backend}/${name}`

/** The commands that bring the running servers to the wanted ones, which differ in nothing else. */
export function serverCommands(before: Server[], wanted: Server[]): string[] {
  const had = new Map(before.map((server) => [key(server), server]))
  return wanted.flatMap((server) => {
    const old = had.get(key(server))
    if (!old) return []
    const name = key(server)
    const commands: string[] = []
    if (old.address !== server.address || old.port !== server.port)
      commands.push(`set server ${name} addr ${server.address} port ${server.port}`)
    if (old.weight !== server.weight) commands.push(`set server ${name} weight ${server.weight}`)
    if (old.stopped && !server.stopped) commands.push(`set server ${name} state ready`)
    if (!old.stopped && server.stopped)
      commands.push(`set server ${name} state maint`, `shutdown sessions server ${name}`)
    return commands
  })
}

// HAProxy reads at most 16 KiB of commands at once.
const mostAtOnce = 100

/** Throws EngineUnavailable if the process refuses one. */
export async function carryOut(place: Place, commands: string[]): Promise<void> {
  for (let from = 0; from < commands.length; from += mostAtOnce) {
    const said = await ask(place, commands.slice(from, from + mostAtOnce))
    const refused = said.split('\n').find((line) => /no such|unknown|invalid|error|require/i.test(line))
    if (refused) throw new EngineUnavailable('The load balancer refused a change', new Error(refused))
  }
}

/**
 * Writes which servers are up or down, for the next worker. It would otherwise send requests to those that are down until
 * its own checks fail, and take the others for down at the first check that fails, whatever `unhealthy_after` is.
 * Everything else of a server comes from the configuration.
 */
export async function keepHealth(place: Place, wanted: Server[], healthyAfter: number): Promise<void> {
  const said = await ask(place, ['show servers state']).catch(() => '')
  const [version = '1', head = '', ...rows] = said.split('\n')
  const columns = head.replace(/^# /, '').split(' ')
  const servers = new Map(wanted.map((server) => [key(server), server]))
  const at = (values: string[], column: string): string => values[columns.indexOf(column)] ?? ''
  const kept = rows.flatMap((row) => {
    const values = row.split(' ')
    const server = servers.get(`${at(values, 'be_name')}/${at(values, 'srv_name')}`)
    const [state, forced, health] = ['srv_op_state', 'srv_admin_state', 'srv_check_health'].map((column) =>
      Number(at(values, column)),
    )
    const isDown = state === 0
    // A new server is up with the health of `rise`, until its first check.
    const isFoundUp = state === 2 && (health ?? 0) > healthyAfter
    if (!server || server.stopped || forced !== 0 || !(isDown || isFoundUp)) return []
    const now: Record<string, string | number> = {
      srv_addr: server.address,
      srv_port: server.port,
      srv_uweight: server.weight,
      srv_iweight: server.weight,
    }
    return [columns.map((column, index) => now[column] ?? values[index]).join(' ')]
  })
  const text = kept.length > 0 ? [version, head, ...kept] : []
  await writeFile(place.servers, text.map((line) => `${line}\n`).join(''), { mode: 0o600 })
}
