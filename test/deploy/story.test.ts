import { afterAll, beforeAll, expect } from '@jest/globals'
import { makeCaddy, makeNode, makePython } from '../support/base-images.ts'
import { balancerTraces } from '../support/balancer-traces.ts'
import { tracesOf } from '../support/disk-traces.ts'
import { engine } from '../support/engine.ts'
import { eventually } from '../support/eventually.ts'
import { networksOf } from '../support/host-networks.ts'
import { testLong } from '../support/long-tests.ts'
import { machineTraces } from '../support/machine-traces.ts'
import { blocksOf, pageOf } from '../../script/lib/pages.ts'
import { openShell } from '../support/paste.ts'
import { facts } from '../support/stack.ts'
import { holdsNothing, makeTenant, type TestTenant } from '../support/tenants.ts'
import { visitors } from '../support/visits.ts'

// The story of docs/deploy-servers.md, pasted into a shell step by step: on container machines, which are the default
// here, and on VMs. Without KVM, a VM is some ten times slower, so it gets fewer requests and more time.

interface Kind {
  kind: string
  /** The story on this kind of machines. */
  told: (block: string) => string
  perSecond: number
}
const patience = String.raw`\"health_check\":{\"within_sec\":600}`
const kinds: Kind[] = [
  { kind: 'container machines', told: (block) => block, perSecond: 100 },
  {
    kind: 'VMs',
    told: (block) =>
      block
        .replace('{"worker_count":2', '{"machine_kind":"vm","worker_count":2')
        .replaceAll(String.raw`\"memory_mib\":96`, String.raw`\"memory_mib\":96,${patience}`),
    perSecond: 5,
  },
]

const words = (output: string): string[] => output.split('\n').map((line) => line.trim())

let tenant: TestTenant
let shell: ReturnType<typeof openShell>
beforeAll(async () => {
  tenant = await makeTenant()
  shell = openShell({ API: facts().api_url, TOKEN: tenant.owner.token })
})
afterAll(() => shell?.close())

/** The ids of what a deploy server has made. */
async function partsOf(deploy: string) {
  const { vpc_id, subnet_id, lb_id } = await tenant.owner.deployServers.get(deploy)
  const its = async (plural: string): Promise<string[]> => {
    const path = `/api/v1/${plural}?managed_by=${deploy}&limit=100`
    return (await tenant.owner.get<{ items: { id: string }[] }>(path)).items.map(({ id }) => id)
  }
  const machines = (await Promise.all(['containers', 'vms'].map(its))).flat()
  return { machines, disks: await its('disks'), networks: [vpc_id, subnet_id], balancer: lb_id }
}

/** What is left of them on the hosts, without the platform's records. */
async function leftOf({ machines, disks, networks, balancer }: Awaited<ReturnType<typeof partsOf>>) {
  const traces = [...machines.map(machineTraces), ...disks.map(tracesOf), balancerTraces(balancer)]
  return [...(await Promise.all(traces)).flat(), ...(await networksOf(networks))]
}

const theShop = async (deploy: string) => {
  const path = `/api/v1/deploy-servers/${deploy}/applications?name=shop`
  return (await tenant.owner.get<{ items: { url: string }[] }>(path)).items[0]?.url ?? ''
}

testLong.each(kinds)(
  'the story of docs/deploy-servers.md is as it says on $kind, without a failed request of the shop',
  async ({ told, perSecond }) => {
    await Promise.all([makeNode(), makePython(), makeCaddy()])
    const [helpers = ''] = blocksOf(await pageOf('vpcs'))
    await shell.paste(helpers.slice(0, helpers.indexOf('\n\n')))
    const [, story = ''] = (await pageOf('deploy-servers')).split(/^## A whole story$/m)
    const [
      server = '',
      files = '',
      deploy = '',
      tags = '',
      env = '',
      scale = '',
      volume = '',
      end = '',
      ...rest
    ] = blocksOf(story).map(told)
    expect(rest).toEqual([])

    await shell.paste(server)
    const built = await shell.paste(files)
    expect(built.split('\n')).toEqual(Array(6).fill('succeeded'))
    const [shop, clock, pages] = (await shell.paste(deploy)).split('\n')
    expect([shop?.trim(), clock, pages]).toEqual([
      'shop one',
      expect.stringMatching(/^clock \d\d:\d\d$/),
      'static pages',
    ])

    const url = await theShop((await shell.paste('echo $DEPLOY')).trim())
    const load = visitors(url, { perSecond })
    expect(words(await shell.paste(tags)).join(', ')).toBe(
      [
        'succeeded, succeeded, succeeded, shop two',
        'succeeded, succeeded, failed, shop two',
        'succeeded, shop one',
      ].join(', '),
    )
    const greeted = await shell.paste(env)
    expect(greeted).toContain('shop one hello')
    expect(greeted).toContain('the task says hello')
    expect(words(await shell.paste(scale))).toEqual(['succeeded', 'succeeded', 'shop one hello'])
    await load.stop()
    expect(load.failures).toEqual([])
    expect([...load.answers.keys()].toSorted()).toEqual(['shop one', 'shop one hello', 'shop two'])
    expect(await shell.paste(volume)).toContain('"output":"kept in the volume')
    const parts = await partsOf((await shell.paste('echo $DEPLOY')).trim())
    expect(parts).toMatchObject({ machines: [expect.any(String), expect.any(String)] }) // cp and w1
    expect(parts.disks).toHaveLength(2)
    for (const id of parts.disks) expect(await tracesOf(id)).not.toEqual([])
    expect(await networksOf(parts.networks)).not.toEqual([])
    expect(await shell.paste(end)).toBe('succeeded')
    await eventually(async () => (await leftOf(parts)).length === 0)

    expect(await tenant.holds()).toEqual(holdsNothing)
    expect(await tenant.storage()).toEqual({ disk_gib: 0, reservations: 0 })
    await eventually(async () => (await engine.withLabel('keelson.tenant', tenant.id)).length === 0)
  },
  7_200_000,
)
