import { join } from 'node:path'
import { balancersRunOf } from '../../script/lib/settings.ts'
import { kernelTraces } from './kernel-traces.ts'
import { groups, hostFolder, hostIndexes, within } from './machine-traces.ts'
import { layout } from './stack.ts'

/**
 * What this machine has of a load balancer on any of the stack's hosts, without our records: files, sockets, control
 * groups, network namespaces and processes whose names contain its id.
 */
export async function balancerTraces(id: string): Promise<string[]> {
  const folders = hostIndexes().map((index) => join(hostFolder(index), 'load-balancers'))
  const runs = within(balancersRunOf(layout))
  const names = [...folders, ...runs, '/run/netns'].flatMap(within)
  return [...[...names, ...groups()].filter((name) => name.includes(id)), ...(await kernelTraces(id))]
}
