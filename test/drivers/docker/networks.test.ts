import { afterEach, expect, test } from '@jest/globals'
import type Docker from 'dockerode'
import { aroundHosts, fabric, one } from '../../support/around-hosts.ts'
import { asRoot } from '../../support/as-root.ts'
import { docker, testTenant } from '../../support/containers.ts'
import { execInside } from '../../support/inside.ts'
import { eventually } from '../../support/eventually.ts'
import { get, nicSpec, subnetSpec } from '../../support/networks.ts'

aroundHosts()

const made: Docker.Container[] = []
afterEach(async () => {
  for (const container of made.splice(0).toReversed()) await container.remove({ force: true })
})

async function start(command: string[], network: Docker.HostConfig): Promise<Docker.Container> {
  const container = await docker.createContainer({
    Image: 'busybox:latest',
    Cmd: command,
    Labels: { 'keelson.tenant': testTenant },
    HostConfig: { Init: true, ...network },
  })
  made.push(container)
  await container.start()
  return container
}

asRoot('containers', () => {
  test('use the NIC of their pause container, which survives their restarts', async () => {
    const subnet = subnetSpec({ names: [{ name: 'client', ip_address: '10.0.0.11' }] })
    await one.networks.applySubnet(subnet)
    const client = await fabric.join(one, subnet, '10.0.0.11', 'client')

    const dns = { Dns: [subnet.gateway_ip], DnsSearch: ['internal'] }
    const pause = await start(['sleep', '3600'], { NetworkMode: 'none', ...dns })
    const { State } = await pause.inspect()
    await one.networks.attachNic(nicSpec(subnet, '10.0.0.10', { pid: State.Pid }))
    const serve = 'echo instance >/tmp/index.html; exec httpd -f -p 80 -h /tmp'
    const instance = await start(['sh', '-c', serve], { NetworkMode: `container:${pause.id}` })

    const answers = () => eventually(async () => (await get(client, '10.0.0.10')) === 'instance')
    await answers()
    expect(await output(instance, ['wget', '-q', '-O', '-', 'http://client/'])).toContain('client')
    expect(await output(instance, ['wget', '-q', '-O', '-', `http://${fabric.outsideAddress}/`])).toContain(
      'outside',
    )
    await instance.restart({ t: 0 })
    await answers()
  })
})

const output = async (container: Docker.Container, command: string[]): Promise<string> =>
  (await execInside(container, command)).output
