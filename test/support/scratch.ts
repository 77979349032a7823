import { existsSync } from 'node:fs'
import { readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { LoadBalancerHost } from '../../drivers/haproxy/host.ts'
import { unnameHostNamespace } from '../../drivers/haproxy/host-namespace.ts'
import { listGroups, markOf, removeGroups } from '../../drivers/linux/groups.ts'
import { loopsBelow, mountsOf } from '../../drivers/linux/mounts.ts'
import { Names } from '../../drivers/linux/names.ts'
import { isNamespace, removeNamespace } from '../../drivers/linux/namespaces.ts'
import { removeTunnel } from '../../drivers/linux/tunnel.ts'
import { processesWith, run } from '../../drivers/system/programs.ts'
import { foldersBegin, namespacesOfFolder } from './load-balancer-names.ts'

// Driver tests run guests, disks and networks of their own, in folders below one temporary folder per stack. An
// interrupted run leaves them behind.

/** The folders of servers that test/server/server.test.ts has started. */
export async function serversIn(scratch: string): Promise<string[]> {
  const found: string[] = []
  for (const folder of await foldersIn(scratch, 'keelson-server-'))
    for (const inner of await readdir(folder))
      if (existsSync(join(folder, inner, 'state'))) found.push(join(folder, inner, 'state'))
  return found
}

/** Ends and removes everything below the folder, and the folder. A missing folder is success. */
export async function removeScratch(scratch: string): Promise<void> {
  if (!existsSync(scratch)) return
  for (const { pid } of await processesWith(`${scratch}/`)) endAtOnce(pid)
  for (const { path } of await loopsBelow(scratch)) await run('losetup', ['--detach', path]).catch(() => '') // gone
  const mounts = (await mountsOf('self')).filter(({ path }) => path.startsWith(`${scratch}/`))
  for (const { path } of mounts.toReversed()) await run('umount', ['--lazy', path])
  for (const folder of await foldersIn(scratch, 'machines-')) await removeGroupsOf(join(folder, 'machines'))
  for (const folder of await foldersIn(scratch, 'networks-')) await removeNamespacesOf(folder)
  for (const folder of await foldersIn(scratch, foldersBegin)) await removeBalancersOf(folder)
  await rm(scratch, { recursive: true })
}

const foldersIn = async (scratch: string, prefix: string): Promise<string[]> =>
  (await readdir(scratch).catch(() => []))
    .filter((name) => name.startsWith(prefix))
    .map((name) => join(scratch, name))

function endAtOnce(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    // The process has ended.
  }
}

async function removeGroupsOf(folder: string): Promise<void> {
  const mark = markOf(folder)
  for (const id of await listGroups(mark)) await removeGroups(mark, id)
}

/** Of the HAProxy driver's tests: the processes have ended, except targets, which only their namespace tells. */
async function removeBalancersOf(folder: string): Promise<void> {
  const settings = { folder: join(folder, 'kept'), run: join(folder, 'run') }
  const { mark } = new LoadBalancerHost(settings as never)
  for (const id of await listGroups(mark)) await removeGroups(mark, id)
  await unnameHostNamespace(mark)
  for (const name of namespacesOfFolder(folder)) {
    if (!(await isNamespace(name))) continue
    const pids = await run('ip', ['netns', 'pids', name])
    for (const pid of pids.split('\n').filter(Boolean)) endAtOnce(Number(pid))
    await removeNamespace(name)
  }
}

/** A fabric's folder has one folder for each host, named after the host's namespace: `ktab12cd34-1`. */
async function removeNamespacesOf(folder: string): Promise<void> {
  const hosts = (await readdir(folder)).filter((name) => name.startsWith('kt'))
  for (const host of hosts)
    await removeTunnel({ names: new Names(host), namespace: null, tunnel: null }, new Map())
  const prefixes = hosts.flatMap((host) => [host.replace(/\d+$/, ''), new Names(host).prefix])
  const all = await readdir('/run/netns').catch(() => [])
  for (const name of all.filter((one) => prefixes.some((prefix) => one.startsWith(prefix))))
    await removeNamespace(name)
}
