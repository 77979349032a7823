import { execFile } from 'node:child_process'
import { existsSync, mkdirSync, readdirSync, readFileSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { promisify } from 'node:util'
import { killProcesses, processesWith } from '../../drivers/system/programs.ts'
import { askControl } from './control.ts'
import { removeDisks } from './disks.ts'
import { existingEngine, hasOwnEngine, ownEngine, removeBridge } from './engine.ts'
import {
  removeHostFence,
  removeHostNetworks,
  removeMachineFence,
  removeMachineNetworks,
} from './host-networks.ts'
import { removeLoadBalancers } from './load-balancers.ts'
import { removeMachines } from './machines.ts'
import { endRecorded, recordedNames, serverName } from './processes.ts'
import { furtherEngineRole, furtherIndexes, makeFurtherHosts, removeFurtherHosts } from './further-hosts.ts'
import { Role, type RoleSpec } from './role.ts'
import { dockerRole } from './roles.ts'
import { doorsRunOf, type Layout, toolsFile } from './settings.ts'

const run = promisify(execFile)

/**
 * Removes everything that a server has made on this machine, except its tools: its own engine with every container on
 * it, its bridge, and the data in the state folder. On another engine it leaves the tenants' containers, which another
 * server may own, and says so.
 */
export async function destroy(layout: Layout): Promise<void> {
  await askControl(layout, 'POST', '/stop').catch(() => {}) // it may not be running
  // First a server that is still starting: it would restart the roles.
  await endRecorded(layout.run, serverName, 60_000)
  // A server that was killed left its roles running.
  const left = recordedNames(layout.run)
  await Promise.all(left.map((name) => endRecorded(layout.run, name, 15_000)))
  await removeMachines(layout)
  await removeLoadBalancers(layout)
  await removeMachineNetworks(layout)
  await emptyFurtherHosts(layout)
  if (hasOwnEngine(layout)) await emptyOwnEngine(layout)
  else await leaveEngine(layout)
  await endShims(layout.run)
  await removeDisks(layout)
  await unmountUnder([layout.run, layout.state])
  for (const entry of existsSync(layout.state) ? readdirSync(layout.state) : []) {
    const path = join(layout.state, entry)
    if (path !== layout.tools && entry !== toolsFile) await rm(path, { recursive: true, force: true })
  }
  await rm(layout.run, { recursive: true, force: true })
  await rm(doorsRunOf(layout), { recursive: true, force: true })
}

async function emptyFurtherHosts(layout: Layout): Promise<void> {
  const last = Math.max(1, ...furtherIndexes(layout))
  for (const host of await makeFurtherHosts(layout, last)) {
    await removeHostNetworks(join(layout.state, `host-${host.index}`), host.namespace)
    await empty(layout, furtherEngineRole(layout, host), host.socket).catch((error: Error) =>
      console.log(`What is on the engine of host ${host.index} could not be removed: ${error.message}`),
    )
    await removeHostFence(join(layout.state, `host-${host.index}`), host.namespace)
  }
  await removeFurtherHosts(layout)
}

async function emptyOwnEngine(layout: Layout): Promise<void> {
  const own = await ownEngine(layout)
  await empty(layout, dockerRole(layout, own), own.socket)
  await removeMachineFence(layout, null)
  await removeBridge(layout)
}

/** Containers that are left keep their network and its firewall. */
async function leaveEngine(layout: Layout): Promise<void> {
  const dockerHost = await existingEngine(layout)
  await removeMachineFence(layout, dockerHost ?? null).catch(() =>
    console.log(
      'Containers on an engine that is not ours are left: docker ps --filter label=keelson.resource',
    ),
  )
}

/** Containers outlive their engine, so the engine has to run once more to remove them. */
async function empty(layout: Layout, spec: RoleSpec, socket: string): Promise<void> {
  const log = join(layout.state, 'log')
  for (const folder of [log, layout.run]) mkdirSync(folder, { recursive: true, mode: 0o700 })
  const engine = new Role(spec, { run: layout.run, cwd: layout.repository, log })
  try {
    await engine.start()
    const env = { ...process.env, DOCKER_HOST: `unix://${socket}` }
    const { stdout } = await run('docker', ['ps', '--all', '--quiet'], { env })
    const containers = stdout.split('\n').filter(Boolean)
    if (containers.length > 0) await run('docker', ['rm', '--force', '--volumes', ...containers], { env })
  } finally {
    await engine.stop() // else the role restarts it, and this program never ends
  }
}

/** Ends what the engines here, which stop right after their last removal, have left of removed containers. */
async function endShims(folder: string): Promise<void> {
  const theirs = `${folder}/`
  const shims = (await processesWith(theirs)).filter(({ args: [program = ''] }) =>
    basename(program).startsWith('containerd-shim'),
  )
  await killProcesses(
    shims.map(({ pid }) => pid),
    theirs,
  )
}

/** Unmounts what would block the removal of the folders. */
export async function unmountUnder(folders: string[]): Promise<void> {
  for (const mounted of mountsUnder(folders)) await run('umount', ['--lazy', mounted])
}

/** Innermost first. */
function mountsUnder(folders: string[]): string[] {
  const points = readFileSync('/proc/mounts', 'utf8')
    .split('\n')
    .map((line) => line.split(' ')[1] ?? '')
  return points.filter((point) => folders.some((folder) => point.startsWith(`${folder}/`))).toReversed()
}
