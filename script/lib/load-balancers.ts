import { existsSync, readFileSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { openHaproxy } from '../../drivers/haproxy/engine.ts'
import { makeMemberNamespaces } from '../../drivers/linux/member-namespaces.ts'
import { makeHostPorts } from '../../drivers/system/host-ports.ts'
import { furtherIndexes } from './further-hosts.ts'
import { balancersRun, balancersRunOf, type Layout } from './settings.ts'

/** Removes the load balancers of this state folder's hosts, which outlive their host workers. */
export async function removeLoadBalancers(layout: Layout): Promise<void> {
  for (const index of [1, ...furtherIndexes(layout)]) {
    const folder = join(layout.state, index === 1 ? 'host' : `host-${index}`)
    const credential = join(folder, 'host.json')
    if (!existsSync(credential)) continue
    const { host_id: hostId } = JSON.parse(readFileSync(credential, 'utf8')) as { host_id: string }
    const engine = await openHaproxy({
      hostId,
      folder: join(folder, 'load-balancers'),
      run: balancersRun(layout, index),
      // No port is given out here.
      hostNamespace: null,
      ports: makeHostPorts({ address: '127.0.0.1', range: [1, 1] }),
    })
    for (const { id } of await engine.list()) await engine.remove(id)
    await engine.close()
    const namespaces = makeMemberNamespaces(hostId)
    for (const id of await namespaces.list()) await namespaces.remove(id)
  }
  await rm(balancersRunOf(layout), { recursive: true, force: true })
}
