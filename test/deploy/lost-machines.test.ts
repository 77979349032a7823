import { setTimeout as delay } from 'node:timers/promises'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { temporalClient } from '../../lib/temporal.ts'
import { DeployServer } from '../../models/deploy/deploy-servers.ts'
import { Deployment } from '../../models/deploy/deployments.ts'
import { Host } from '../../models/compute/hosts.ts'
import { Route } from '../../models/network/load-balancer-routes.ts'
import { loadAppImages, tellsItsStart } from '../support/app-images.ts'
import type { DeployServerBody } from '../support/client.ts'
import { applicationsOf } from '../support/clients/applications.ts'
import { eventsOf } from '../support/clients/events.ts'
import { type ServiceBody, servicesOf } from '../support/clients/services.ts'
import { describeHosts, first, second, third } from '../support/describe-hosts.ts'
import { eventually } from '../support/eventually.ts'
import { closeFurther, open, type TestHost } from '../support/hosts.ts'
import { testLong } from '../support/long-tests.ts'
import { platform } from '../support/platform.ts'
import { innerEngine } from '../support/machines-inside.ts'
import { stackSettings } from '../support/stack.ts'
import { hideSwarmCopies } from '../support/swarm-copies.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'
import { visit, visitors } from '../support/visits.ts'

// Machines of a deploy server whose hosts are lost. Each test continues from the one before it.

/** A host breaks, with the machine on it. */
const lose = async (host: TestHost, machine: string | undefined): Promise<void> => {
  await platform.kill(host.roles.host)
  const its = { filters: { label: [`keelson.resource=${machine}`] } }
  for (const { Id } of await host.engine.listContainers(its)) await host.engine.getContainer(Id).kill()
}

describeHosts('a deploy server', () => {
  let tenant: TestTenant
  let server: DeployServerBody
  let apps: ReturnType<typeof applicationsOf>
  let services: ServiceBody[]

  const now = (): Promise<DeployServerBody> => tenant.owner.deployServers.get(server.id)
  const hostOf = async (name: string): Promise<string | null> => {
    const { control_plane, workers } = await now()
    const node = [control_plane, ...workers].find((one) => one?.name === name)
    return (await tenant.owner.containers.get(node?.machine_id ?? '')).host_id
  }
  const activity = async (): Promise<string[]> => {
    const { items } = await tenant.owner.get<{ items: { kind: string; message: string }[] }>(
      `/api/v1/deploy-servers/${server.id}/activity?limit=100`,
    )
    return items.map(({ kind, message }) => `${kind}: ${message}`)
  }
  /** The deployment whose release serves, and its workers. */
  const placesOf = async (app: string) => {
    const { deployment_id } = await apps.get(app)
    const serves = await Deployment.findOne({ _id: deployment_id, tenant_id: tenant.id }).lean()
    return { kind: serves?.kind, nodes: serves?.places.map(({ node }) => node) ?? [] }
  }
  /** A host is back, and has ended what it had of this tenant. */
  const isBack = async (host: TestHost): Promise<void> => {
    await platform.start(host.roles.host)
    const its = { all: true, filters: { label: [`keelson.tenant=${tenant.id}`] } }
    await eventually(async () => (await host.engine.listContainers(its)).length === 0)
  }
  const path = (machine: string): string => `/api/v1/deploy-servers/${server.id}/machines/${machine}/replace`
  const replace = (machine: string) => tenant.owner.ask('POST', path(machine))
  const replacing = async (machine: string) => (await tenant.owner.begin('POST', path(machine))).operation

  // The second worker is alone on the second host.
  beforeAll(async () => {
    tenant = await makeTenant()
    await open([first])
    server = await tenant.owner.deployServers.make()
    await open([second])
    await (await tenant.owner.deployServers.update(server.id, { worker_count: 2 })).operation.success()
    server = await now()
    await loadAppImages(tenant.owner, server)
    apps = applicationsOf(tenant.owner, server.id)
  })
  afterAll(closeFurther)

  const machines = async () => {
    const { control_plane, workers, lb_id } = await now()
    const { endpoints } = await tenant.owner.loadBalancers.get(lb_id)
    return { nodes: [control_plane, ...workers], endpoints }
  }

  test('keeps the machine of a host whose program is back within a minute', async () => {
    const before = await machines()
    await platform.kill(second.roles.host)
    await eventually(async () => (await now()).workers[1]?.lost_at)
    await platform.start(second.roles.host)
    await eventually(async () => (await now()).workers[1]?.lost_at === null)
    expect(await machines()).toEqual(before)
    expect((await activity()).slice(0, 2)).toEqual([
      'machine_back: The host of w2 answers again',
      'machine_lost: The host of w2 does not answer',
    ])
  })

  testLong(
    'keeps its machines and load balancer while no host can tell the api that it is there',
    async () => {
      const before = await machines()
      await platform.kill('api')
      await eventually(async () => (await Host.countDocuments({ unreachable_since: { $ne: null } })) === 3)
      const silent = new Date()
      await delay(45_000) // a lost host is given up after 30 s
      await platform.start('api')
      await eventually(async () => (await Host.countDocuments({ last_heard_at: { $gt: silent } })) === 3)
      expect((await activity()).filter((words) => words.startsWith('rescue'))).toEqual([])
      await eventually(async () => (await now()).workers[1]?.lost_at === null)
      expect(await machines()).toEqual(before)
    },
  )

  test('serves on when a worker’s host is lost, and has a new worker in its place', async () => {
    const app = await apps.make({ replicas: 2 })
    const text = 'services: { web: { image: "demo:v1", mem_limit: 32m, command: [sleep, infinity] } }'
    const make = () => servicesOf(tenant.owner, server.id).make({ docker_compose: text })
    services = [await make(), await make()]
    expect(new Set(services.map(({ worker }) => worker))).toEqual(new Set(['w1', 'w2']))
    const lost = server.workers[1]?.machine_id
    expect(await hostOf('w2')).toBe(second.id)
    await open([first, third])
    const events = eventsOf(tenant.owner, server.id)
    const { id: subscription } = await events.make({ url: 'https://hooks.example.com/' })
    const visiting = visitors(app.url)
    await platform.kill(second.roles.host)
    const after = await eventually(async () => {
      const { status, workers } = await now()
      return status === 'ready' && workers[1]?.registered && workers[1].machine_id !== lost && workers
    })
    await visiting.stop()
    expect(visiting.failures).toEqual([])
    expect(after).toMatchObject([{ name: 'w1' }, { name: 'w2', ip_address: '10.77.0.12', lost_at: null }])
    expect([first.id, third.id]).toContain(await hostOf('w2'))
    await eventually(async () => (await apps.get(app.id)).status === 'running')
    expect(await activity()).toEqual(
      expect.arrayContaining([
        'machine_lost: The host of w2 does not answer',
        'rescue: The platform is replacing w2',
        'machine_replaced: w2 has been replaced by a new machine',
      ]),
    )
    const told = (await events.deliveries(subscription)).map(({ kind, message }) => `${kind}: ${message}`)
    expect(told).toEqual(
      expect.arrayContaining([
        'worker.lost: The host of w2 does not answer',
        'worker.replaced: w2 has been replaced by a new machine',
      ]),
    )
  })

  test('loses what is left of the former worker when its host is back', async () => {
    await isBack(second)
    server = await now()
    await loadAppImages(tenant.owner, server) // there is no registry here
    for (const { id } of services)
      await eventually(async () => {
        const { status, containers } = await servicesOf(tenant.owner, server.id).get(id)
        return status === 'running' && containers.every(({ state }) => state === 'running')
      })
  })

  /** By which its Swarm is known. */
  const managerNode = async (): Promise<string | null | undefined> =>
    (await DeployServer.findOne({ _id: server.id, tenant_id: tenant.id }).lean())?.manager_node_id

  /** Begins to replace the control plane, and hides the copy of what it knew. */
  const replacingWithoutCopy = async () => {
    const former = (await now()).control_plane?.machine_id ?? ''
    const replacement = await replacing('cp')
    await hideSwarmCopies(server.id, former)
    return replacement
  }

  test('does not touch its applications while its control plane is replaced', async () => {
    const [app, former] = [
      await apps.make({ command: tellsItsStart }),
      (await now()).control_plane?.machine_id,
    ]
    const swarm = await managerNode()
    const [{ deployment_id }, { text: since }] = [await apps.get(app.id), await visit(app.url)]
    const visiting = visitors(app.url)
    await (await replacing('cp')).success()
    const { control_plane, workers } = await now()
    expect(control_plane).toMatchObject({ name: 'cp', registered: true, ip_address: '10.77.0.10' })
    expect(control_plane?.machine_id).not.toBe(former)
    expect(workers.map(({ registered }) => registered)).toEqual([true, true])
    expect(await managerNode()).toBe(swarm)
    const other = await apps.make()
    await visiting.stop()
    expect(visiting.failures).toEqual([])
    expect([...visiting.answers.keys()]).toEqual([since])
    expect((await apps.get(app.id)).deployment_id).toBe(deployment_id)
    await (await apps.deploy(other.id, { tag: 'v2' })).operation.success()
    expect((await visit(other.url)).text).toBe('v2')
    for (const { id } of [app, other]) await (await apps.delete(id)).operation.success()
  })

  test('serves on if there is no copy of what its control plane knew', async () => {
    // Begins its answer at once, after which a load balancer cannot ask another replica.
    const slow = `cd /tmp/w/cgi-bin; printf '#!/bin/sh\\necho; echo sl; sleep 2; echo ow' >slow; chmod 755 slow`
    const page = 'mkdir -p /tmp/w/cgi-bin; echo v1 >/tmp/w/index.html'
    const command = ['sh', '-c', `${page}; ${slow}; exec httpd -f -p "$PORT" -h /tmp/w`]
    const [app, wide] = [await apps.make(), await apps.make({ replicas: 2, command })]
    const { deployment_id } = await apps.get(app.id)
    const visiting = [visitors(wide.url), visitors(wide.url, 4, '/cgi-bin/slow')] // the slow ones are always in flight
    const swarm = await managerNode()
    const replacement = await replacingWithoutCopy()
    await replacement.success()
    expect(await managerNode()).not.toBe(swarm)
    expect((await visit(app.url)).text).toBe('v1')
    for (const one of visiting) await one.stop()
    expect(visiting.flatMap(({ failures }) => failures)).toEqual([])
    expect(visiting.map(({ answers }) => [...answers.keys()])).toEqual([['v1'], ['sl\now']])
    expect((await apps.get(app.id)).deployment_id).toBe(deployment_id)
    await (await apps.deploy(app.id, { tag: 'v2' })).operation.success()
    expect((await visit(app.url)).text).toBe('v2')
    for (const { id } of [app, wide]) await (await apps.delete(id)).operation.success()
  })

  testLong('has a worker join anew that its new control plane does not know', async () => {
    const { control_plane, workers } = await now()
    const manager = await innerEngine(tenant.owner, control_plane?.machine_id ?? '')
    const nodes = (await manager.listNodes()) as { ID: string; Spec: { Labels: Record<string, string> } }[]
    const node = nodes.find(({ Spec }) => Spec.Labels['keelson.machine'] === workers[1]?.machine_id)
    await manager.getNode(node?.ID ?? '').remove({ force: true })
    await (await replacing('cp')).success()
    const app = await apps.make({ replicas: 2 })
    expect((await placesOf(app.id)).nodes.toSorted()).toEqual(['w1', 'w2'])
    await (await apps.delete(app.id)).operation.success()
  })

  testLong(
    'has a new control plane when the host of the former one is lost, and its applications run on',
    async () => {
      await open([second])
      await (await replacing('cp')).success()
      expect(await hostOf('cp')).toBe(second.id)
      await open([first, third])
      const app = await apps.make({ command: tellsItsStart })
      const { text: since } = await visit(app.url)
      const events = eventsOf(tenant.owner, server.id)
      const { id: subscription } = await events.make({ url: 'https://hooks.example.com/' })
      const lost = (await now()).control_plane?.machine_id
      const visiting = visitors(app.url)
      await lose(second, lost)
      await eventually(async () => {
        const { status, control_plane, workers } = await now()
        const isNew = control_plane?.registered && control_plane.machine_id !== lost
        return status === 'ready' && isNew && workers.every(({ registered }) => registered)
      })
      expect((await visit(app.url)).text).toBe(since)
      await visiting.stop()
      expect(visiting.failures).toEqual([])
      expect([...visiting.answers.keys()]).toEqual([since])
      await (await apps.deploy(app.id, { tag: 'v2' })).operation.success()
      expect(await activity()).toEqual(
        expect.arrayContaining([
          'machine_lost: The host of cp does not answer',
          'rescue: The platform is replacing cp',
        ]),
      )
      const told = (await events.deliveries(subscription)).map(({ kind, message }) => `${kind}: ${message}`)
      expect(told).toEqual(
        expect.arrayContaining([
          'control_plane.lost: The host of cp does not answer',
          'control_plane.replaced: cp has been replaced by a new machine',
        ]),
      )
      await (await apps.delete(app.id)).operation.success()
      await isBack(second)
    },
  )

  /** The second worker is alone on the second host, and has the volume of an application. */
  const keepingOnSecond = async () => {
    await open([second])
    await (await replacing('w2')).success()
    await loadAppImages(tenant.owner, await now())
    await open([first, third])
    const machine = (await now()).workers[1]?.machine_id
    let kept = await apps.make()
    const keep = async (): Promise<void> => {
      await apps.addStorage(kept.id, '/data')
      await (await apps.deploy(kept.id)).operation.success()
    }
    await keep()
    while ((await placesOf(kept.id)).nodes[0] !== 'w2') {
      kept = await apps.make()
      await keep()
    }
    return { kept, machine }
  }

  testLong(
    'moves what has no volumes from a lost worker that has some, which serves again when it is back',
    async () => {
      const { kept, machine } = await keepingOnSecond()
      const wide = await apps.make({ replicas: 2 })
      expect((await placesOf(wide.id)).nodes.toSorted()).toEqual(['w1', 'w2'])
      await lose(second, machine)
      await eventually(async () => !(await placesOf(wide.id)).nodes.includes('w2'))
      expect(await placesOf(wide.id)).toEqual({ kind: 'move', nodes: ['w1', 'w1'] })
      expect((await visit(wide.url)).text).toBe('v1')
      expect(await now()).toMatchObject({ status: 'ready', workers: [{}, { machine_id: machine }] })
      expect((await now()).workers[1]).toMatchObject({ lost_at: expect.any(String) })
      expect((await placesOf(kept.id)).nodes).toEqual(['w2'])

      await platform.start(second.roles.host)
      await eventually(async () => (await now()).workers[1]?.lost_at === null)
      await eventually(async () => (await visit(kept.url)).text === 'v1')
      expect((await now()).workers[1]?.machine_id).toBe(machine)
      for (const { id } of [kept, wide]) await (await apps.delete(id)).operation.success()
    },
  )

  testLong('has a worker join that was lost when its control plane formed a new Swarm', async () => {
    const { kept, machine } = await keepingOnSecond()
    await lose(second, machine)
    await eventually(async () => (await now()).workers[1]?.lost_at)
    await (await replacingWithoutCopy()).success()
    expect((await now()).workers).toMatchObject([{ registered: true }, { registered: false }])
    const wide = await apps.make({ replicas: 2 })
    expect((await placesOf(wide.id)).nodes).toEqual(['w1', 'w1'])

    await platform.start(second.roles.host)
    await eventually(async () => {
      const { status, workers } = await now()
      return status === 'ready' && workers[1]?.registered
    })
    expect((await now()).workers[1]).toMatchObject({ machine_id: machine, lost_at: null })
    await eventually(async () => (await visit(kept.url)).text === 'v1')
    expect(await activity()).toContain('rescue: The platform has w2 join the Swarm')
    for (const { id } of [kept, wide]) await (await apps.delete(id)).operation.success()
  })

  test('destroys the volumes of a worker only when it is told to', async () => {
    const app = await apps.make()
    await apps.addStorage(app.id, '/data')
    await (await apps.deploy(app.id)).operation.success()
    const [worker = ''] = (await placesOf(app.id)).nodes
    const refused = await replace(worker)
    expect([refused.status, refused.body['code']]).toEqual([409, 'storage_on_worker'])
    expect((await replace('w9')).status).toBe(404)
  })

  test('sends requests to all workers again if an operator ends a replacement while one rests', async () => {
    const app = await apps.make({ replicas: 2 })
    const its = { tenant_id: tenant.id, lb_id: server.lb_id }
    const weights = async (): Promise<number[]> =>
      (await Route.find(its).lean()).flatMap(({ targets }) => targets.map(({ weight }) => weight))
    const replacement = await replacingWithoutCopy()
    await eventually(async () => (await weights()).includes(0))
    const { workflow_id } = await replacement.now()
    await temporalClient(stackSettings()).workflow.getHandle(workflow_id).terminate()
    expect((await replacement.end()).state).toBe('failed')
    const resting = { _id: server.id, tenant_id: tenant.id, 'nodes.resting': true }
    await eventually(async () => !(await DeployServer.exists(resting)))
    expect(await weights()).not.toContain(0)
    expect((await visit(app.url)).text).toBe('v1')
  })
})
