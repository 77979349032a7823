import { expect, test } from '@jest/globals'
import { instanceTypes, type InstanceType } from '../../models/deploy/instance-types.ts'
import { loadAppImages } from '../support/app-images.ts'
import type { DeployServerBody, Json } from '../support/client.ts'
import { applicationsOf } from '../support/clients/applications.ts'
import type { NodeBody } from '../support/clients/deploy-servers.ts'
import { engine } from '../support/engine.ts'
import { eventually } from '../support/eventually.ts'
import { testLong } from '../support/long-tests.ts'
import { sampled } from '../support/sampled.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// A change of a deploy server that is cancelled leaves it ready, with the machines as they are, and the next change succeeds.
// The creation, the removal of a worker and the kills are in deploy-server-kills.test.ts.

const nodesOf = ({ control_plane, workers }: DeployServerBody): NodeBody[] =>
  [control_plane, ...workers].flatMap((node) => node ?? [])

/** What a tenant has beside what the record of its deploy server names, or in another size: nothing. */
async function differences(tenant: TestTenant, server: DeployServerBody): Promise<string[]> {
  const list = async (kind: string) =>
    (
      await tenant.owner.get<{ items: (Json & { id: string })[] }>(
        `/api/v1/${kind}?managed_by=${server.id}&limit=100`,
      )
    ).items
  const [machines, disks] = await Promise.all([list('containers'), list('disks')])
  const nodes = nodesOf(server).filter(({ machine_id }) => machine_id !== null)
  const found = nodes.flatMap(({ name, machine_id, instance_type, disk_gib }) => {
    const { memory_mib } = instanceTypes[instance_type as InstanceType]
    const machine = machines.find(({ id }) => id === machine_id)
    const disk = disks.find((one) => one['name'] === name)
    return [
      ...(machine?.['memory_mib'] === memory_mib ? [] : [`${name} is not ${instance_type}`]),
      ...(disk?.['size_gib'] === disk_gib ? [] : [`the disk of ${name} has not ${disk_gib} GiB`]),
    ]
  })
  const made = (await engine.withLabel('keelson.tenant', tenant.id)).filter(
    ({ Labels }) => Labels['keelson.kind'] === 'container',
  )
  const counts = [machines.length, disks.length, made.length, (await tenant.storage()).reservations]
  return counts.every((count) => count === nodes.length)
    ? found
    : [...found, `${nodes.length} nodes; machines, disks, containers, reservations: ${counts.join(', ')}`]
}

const replaceW2 = (tenant: TestTenant, id: string) =>
  tenant.owner.begin('POST', `/api/v1/deploy-servers/${id}/machines/w2/replace`)
const change = (changes: Json) => (tenant: TestTenant, id: string) =>
  tenant.owner.deployServers.update(id, changes)

const small = { worker_instance_type: 'small', app_instance_type: 'small' }
/** `step`: when it is cancelled. `keeps`: the workers that have their machines then. */
const cases = [
  { what: 'a growth that makes a machine', begin: change({ worker_count: 4 }), step: /^making the network/ },
  { what: 'a growth whose machine joins', begin: change({ worker_count: 4 }), step: /Swarm/ },
  {
    what: 'a growth that has its first machine',
    begin: change({ worker_count: 4 }),
    step: /machine w4/,
    keeps: 3,
  },
  { what: 'a resize', begin: change(small), step: /^resizing cp/ },
  { what: 'a resize that has done the control plane', begin: change(small), step: /^resizing w1/ },
  { what: 'a growth of the disks', begin: change({ worker_disk_gib: 4 }), step: /^growing the disk of cp/ },
  {
    what: 'a growth of the disks that has done one',
    begin: change({ worker_disk_gib: 4 }),
    step: /disk of w1/,
  },
  { what: 'a replacement that moves applications', begin: replaceW2, step: /^moving/ },
]

test.each(sampled(cases, 1))(
  '$what and is cancelled leaves the deploy server ready, and the next change succeeds',
  async ({ begin, step, keeps = 2 }) => {
    const tenant = await makeTenant()
    const { deployServers } = tenant.owner
    const before = await deployServers.make({ worker_count: 2 })
    const { id } = before
    await loadAppImages(tenant.owner, before)
    const apps = applicationsOf(tenant.owner, id)
    const app = await apps.make({ replicas: 2 })

    const { operation } = await begin(tenant, id)
    await operation.says(step)
    await operation.cancel()
    expect(await operation.end()).toMatchObject({ state: 'cancelled' })
    const after = await deployServers.get(id)
    expect(after).toMatchObject({
      status: 'ready',
      operation_id: null,
      init_step: null,
      worker_count: keeps,
      worker_instance_type: 'mini',
    })
    expect(after.workers.map(({ name }) => name)).toEqual(['w1', 'w2', 'w3'].slice(0, keeps))
    expect(await differences(tenant, after)).toEqual([])

    await (await deployServers.update(id, {})).operation.success()
    const whole = await deployServers.get(id)
    expect(whole.workers.map(({ registered }) => registered)).toEqual(Array(keeps).fill(true))
    expect(nodesOf(whole).map(({ instance_type }) => instance_type)).toEqual(nodesOf(whole).map(() => 'mini'))
    await (await deployServers.update(id, { ...small, worker_disk_gib: 4 })).operation.success()
    const grown = await deployServers.get(id)
    expect(nodesOf(grown)).toEqual(
      nodesOf(whole).map((node) => ({
        ...node,
        instance_type: 'small',
        disk_gib: node.name === 'cp' ? 6 : 4,
      })),
    )
    expect(await differences(tenant, grown)).toEqual([])
    await loadAppImages(tenant.owner, grown) // a new machine has none
    await (await apps.deploy(app.id)).operation.success()
    expect((await apps.get(app.id)).status).toBe('running')
    await (await deployServers.delete(id)).operation.success()
  },
)

testLong(
  'a replacement that is cancelled without the former machine is completed by the platform',
  async () => {
    const tenant = await makeTenant()
    const { deployServers } = tenant.owner
    const before = await deployServers.make({ worker_count: 2 })
    const { id } = before
    const { operation } = await replaceW2(tenant, id)
    await operation.says(/^making the machine/)
    await operation.cancel()
    expect(await operation.end()).toMatchObject({ state: 'cancelled' })
    const isWhole = async (): Promise<boolean> => {
      const { status, operation_id, workers } = await deployServers.get(id)
      return status === 'ready' && operation_id === null && workers.every(({ registered }) => registered)
    }
    await eventually(isWhole)
    const after = await deployServers.get(id)
    expect(after.workers[0]).toEqual(before.workers[0])
    expect(after.workers[1]?.machine_id).not.toBe(before.workers[1]?.machine_id)
    expect(await differences(tenant, after)).toEqual([])
    await (await deployServers.update(id, { worker_count: 3 })).operation.success()
    expect(await differences(tenant, await deployServers.get(id))).toEqual([])
    await (await deployServers.delete(id)).operation.success()
  },
)
