import { beforeAll, describe, expect, test } from '@jest/globals'
import { loadAppImages } from '../support/app-images.ts'
import type { DeployServerBody } from '../support/client.ts'
import { applicationsOf } from '../support/clients/applications.ts'
import { testDrawn } from '../support/drawn.ts'
import { eventually } from '../support/eventually.ts'
import { runOnMachine } from '../support/machines-inside.ts'
import { sampled } from '../support/sampled.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'
import { visit } from '../support/visits.ts'

// The metrics and activity of applications, which their hosts report every ten seconds.

let tenant: TestTenant
let server: DeployServerBody
let apps: ReturnType<typeof applicationsOf>

beforeAll(async () => {
  tenant = await makeTenant()
  server = await tenant.owner.deployServers.make({ worker_count: 2 })
  await loadAppImages(tenant.owner, server)
  apps = applicationsOf(tenant.owner, server.id)
})

describe('the metrics of an application', () => {
  test('are the sum over its replicas', async () => {
    const busy = 'httpd -p "$PORT" -h /tmp; exec sh -c "while :; do :; done"'
    const app = await apps.make({ command: ['sh', '-c', busy], replicas: 2, cpu_cores: 0.1 })
    for (let i = 0; i < 20; i++) await visit(app.url)
    // Each may use a tenth of a core, and wants more: what is beyond that is the sum. A busy host gives them less.
    const sums = async () => {
      const series = await apps.metrics(app.id)
      const of = (name: string) =>
        series.find((one) => one.name === name)?.points.map(([, value]) => value) ?? []
      const cores = of('cpu_cores_used')
      return (
        Math.max(...cores) > 0.1 && { cores, memory: of('memory_mib_used'), received: of('net_rx_bytes') }
      )
    }
    const last = await eventually(sums)
    expect(Math.max(...last.cores)).toBeLessThan(0.3)
    expect(Math.max(...last.memory)).toBeGreaterThan(0)
    expect(Math.max(...last.memory)).toBeLessThan(64)
    expect(last.received.reduce((sum, bytes) => sum + bytes, 0)).toBeGreaterThan(20 * 60)
    await (await apps.delete(app.id)).operation.success()
  })

  test('have no points before it runs', async () => {
    const { body } = await tenant.owner.ask('POST', `/api/v1/deploy-servers/${server.id}/applications`, {
      name: 'quiet',
      image: 'demo',
      tag: 'v1',
      deploy: false,
    })
    const series = await apps.metrics(String(body['id']))
    expect(series).toHaveLength(6)
    expect(series.flatMap(({ points }) => points)).toEqual([])
  })
})

testDrawn('an application without a port is unhealthy when its process ends again and again', async () => {
  const command = ['sh', '-c', 'while [ ! -e /data/over ]; do sleep 1; done; exit 3']
  const id = await apps.prepare({ port: null, command })
  await apps.addStorage(id, '/data')
  await (await apps.deploy(id)).operation.success()
  expect(await apps.get(id)).toMatchObject({ status: 'running' })
  const { body: task } = await apps.addTask(id, { command: 'touch /data/over' })
  await (await apps.runTask(id, String(task['id']))).operation.end()
  await eventually(async () => (await apps.get(id)).status === 'unhealthy', { withinMs: 120_000 })
  await (await apps.delete(id)).operation.success()
})

describe('the activity of an application', () => {
  test.each(
    sampled<[string, string, number, string]>(
      [
        ['ended with an exit code', 'sleep 8; exit 3', 3, 'exit code 3'],
        ['used too much memory', 'sleep 8; exec tail /dev/zero', 137, 'more memory than it may'],
      ],
      1,
    ),
  )('says that a replica %s', async (_, script, exit_code, words) => {
    const app = await apps.make({ command: ['sh', '-c', script], port: null })
    const ended = await eventually(async () => {
      const events = await apps.activity(app.id)
      return events.length >= 2 && events
    })
    for (const event of ended)
      expect(event).toMatchObject({
        kind: 'replica_ended',
        message: expect.stringContaining(words),
        data: { exit_code, worker: expect.stringMatching(/^w[12]$/), deployment_id: app.deployment_id },
      })
    expect(new Set(ended.map(({ time }) => time)).size).toBe(ended.length)
    await (await apps.delete(app.id)).operation.success()
  })

  testDrawn('says that the load balancer cannot reach a replica, and that it can again', async () => {
    const listening = 'httpd -p "$PORT" -h /tmp'
    const app = await apps.make({ command: ['sh', '-c', `${listening}; exec sleep 600`], replicas: 2 })
    const other = await apps.make()
    const worker = server.workers[0]?.machine_id ?? ''
    const replica = `$(docker ps -q --filter label=keelson.deployment=${app.deployment_id})`
    const inReplica = (command: string) =>
      runOnMachine(tenant.owner, worker, `docker exec ${replica} sh -c '${command}'`)
    const seen = async (kind: string) => (await apps.activity(app.id)).some((event) => event.kind === kind)
    await inReplica('killall httpd')
    await eventually(() => seen('target_unhealthy'))
    await inReplica(listening)
    await eventually(() => seen('target_healthy'))
    expect(await apps.activity(other.id)).toEqual([])
  })
})
