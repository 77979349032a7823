import { chmod, readdir, rm, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { expect, test } from '@jest/globals'
import { runIn } from '../../../drivers/linux/commands.ts'
import { makePlaces } from '../../../drivers/haproxy/places.ts'
import { run } from '../../../drivers/system/programs.ts'
import {
  applied,
  ask,
  balancer,
  certificateFor,
  portOf,
  route,
  settings,
  withLoadBalancers,
} from '../../support/load-balancers.ts'

// What a proxy that its clients have taken over would find: it runs as the user `haproxy`, as those of other tenants do.

/** Those of the files and sockets that this user may read or write. */
async function openTo(user: string, paths: string[]): Promise<string[]> {
  const look = 'for path do if [ -r "$path" ] || [ -w "$path" ]; then echo "$path"; fi; done'
  const as = [`--reuid=${user}`, `--regid=${user}`, '--clear-groups']
  const found = await run('setpriv', [...as, 'sh', '-c', look, 'sh', ...paths])
  return found.split('\n').filter(Boolean)
}

withLoadBalancers('a load balancer', () => {
  test('keeps its sockets, keys, configuration and logs from other users, and has no other port', async () => {
    const certificate = await certificateFor('a.test')
    const plain = { port: 80, host_port: null, certificate_ids: [], redirect_to_https: false }
    const spec = balancer({
      routes: [route()],
      certificates: [certificate],
      listeners: [
        { ...plain, protocol: 'http' },
        { ...plain, port: 443, protocol: 'https', certificate_ids: [certificate.id] },
      ],
    })
    await applied(spec)
    expect((await ask(await portOf(spec.id), '/')).status).toBe(200)

    // The platform's folder may be open to others.
    const above = dirname(settings.folder)
    const open = join(above, 'open')
    await chmod(above, 0o755)
    await writeFile(open, '', { mode: 0o644 })
    const {
      folder,
      run: running,
      admin,
      master,
      config,
      log,
    } = makePlaces(settings.folder, settings.run)(spec.id)
    const paths = await Promise.all(
      [folder, running].map(async (one) =>
        (await readdir(one, { recursive: true, withFileTypes: true }))
          .filter((entry) => !entry.isDirectory())
          .map((entry) => join(entry.parentPath, entry.name)),
      ),
    )
    expect(paths.flat()).toEqual(expect.arrayContaining([admin, master, config, log]))
    expect(paths.flat().some((path) => path.includes('/secrets/'))).toBe(true)
    for (const user of ['haproxy', '65534']) // the second is `nobody`
      expect(await openTo(user, [open, ...paths.flat()])).toEqual([open])
    await rm(open)

    const listening = await runIn(spec.namespace, 'ss', ['-Hltn'])
    const ports = listening.match(/:\d+(?=\s)/g)?.map((port) => Number(port.slice(1)))
    expect([...new Set(ports)].toSorted((a, b) => a - b)).toEqual([80, 443])
  })
})
