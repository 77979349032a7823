import { readFile } from 'node:fs/promises'
import { beforeAll, describe, expect, test } from '@jest/globals'
import { processesWith } from '../../drivers/system/programs.ts'
import type { DeployServerBody, Json } from '../support/client.ts'
import { applicationsOf } from '../support/clients/applications.ts'
import { buildsOf } from '../support/clients/builds.ts'
import { isLong } from '../support/long.ts'
import { holdsNothing, makeTenant, type TestTenant } from '../support/tenants.ts'
import { visit } from '../support/visits.ts'

// Without KVM, a VM boots for minutes: the story is of the long form. The short form's hosts offer no VMs.
const bootsWithinMs = 1_800_000
const minutes = 60_000

const path = '/api/v1/deploy-servers'

;(isLong ? describe.skip : describe)('on a platform whose hosts have no VMs', () => {
  test('a deploy server of VMs is refused, and nothing is made', async () => {
    const { owner } = await makeTenant()
    expect(await owner.ask('POST', path, { machine_kind: 'vm' })).toMatchObject({
      status: 409,
      body: { code: 'no_machines', detail: expect.stringContaining('vm') },
    })
    expect(await owner.ask('POST', path, { machine_kind: 'microvm' })).toMatchObject({
      status: 422,
      body: { errors: [{ pointer: '/machine_kind' }] },
    })
    expect(await owner.get(path)).toMatchObject({ total: 0 })
  })
})

;(isLong ? describe : describe.skip)('a deploy server of VMs', () => {
  let tenant: TestTenant
  let server: DeployServerBody
  let url: string
  const noteStart = '/bin/busybox cat /proc/sys/kernel/random/uuid >/site/began'

  beforeAll(async () => {
    tenant = await makeTenant()
    const { id, operation } = await tenant.owner.deployServers.create({ machine_kind: 'vm' })
    await operation.success(bootsWithinMs)
    server = await tenant.owner.deployServers.get(id)
  }, bootsWithinMs)

  const vms = () =>
    tenant.owner.get<{ items: (Json & { id: string })[] }>(
      `/api/v1/vms?managed_by=${server.id}&sort_by=name&order=asc`,
    )

  test('has VMs that are hidden, that only the platform changes, and that count against the limits', async () => {
    expect(server).toMatchObject({
      status: 'ready',
      machine_kind: 'vm',
      control_plane: { name: 'cp', registered: true },
      workers: [{ name: 'w1', registered: true }],
    })
    const { items } = await vms()
    expect(items).toMatchObject([
      { name: 'cp', status: 'running', memory_mib: 640, nics: [{ ip_address: '10.77.0.10' }] },
      { name: 'w1', status: 'running', memory_mib: 640 },
    ])
    expect(await tenant.owner.get('/api/v1/vms')).toMatchObject({ total: 0 })
    expect(await tenant.owner.get(`/api/v1/containers?managed_by=${server.id}`)).toMatchObject({ total: 0 })
    expect((await tenant.holds()).cpu_milli).toBeGreaterThanOrEqual(2000)
    const [cp] = items
    const at = `/api/v1/vms/${cp?.id}`
    const asked = [
      tenant.owner.ask('POST', `${at}/stop`),
      tenant.owner.ask('PUT', at, { memory_mib: 4096 }),
      tenant.owner.ask('DELETE', at),
    ]
    for (const answer of await Promise.all(asked))
      expect(answer).toMatchObject({ status: 409, body: { code: 'managed', managed_by: server.id } })
  })

  test(
    'builds and runs an application, which the load balancer reaches',
    async () => {
      const builds = buildsOf(tenant.owner, server.id)
      const apps = applicationsOf(tenant.owner, server.id)
      const dockerfile = [
        'FROM scratch',
        'COPY busybox /bin/busybox',
        'RUN ["/bin/busybox", "mkdir", "/site"]',
        'RUN ["/bin/busybox", "sh", "-c", "echo from a VM >/site/index.html"]',
        `CMD ["/bin/busybox", "sh", "-c", "${noteStart}; exec /bin/busybox httpd -f -p $PORT -h /site"]`,
      ]
      // No registry of images answers here, and the machines have no images.
      const artifact_id = await builds.push('shop', [
        { name: 'Dockerfile', content: dockerfile.join('\n') },
        { name: 'busybox', mode: 0o755, content: await readFile('/bin/busybox') },
      ])
      const build = await builds.create({ artifact_id, image: 'shop', tag: 'v1' })
      await build.operation.success(30 * minutes)
      const { id, operation } = await apps.create({
        name: 'shop',
        image: 'shop',
        tag: 'v1',
        health_check: { within_sec: 600 },
      })
      await operation.success(30 * minutes)
      ;({ url } = await apps.get(id))
      expect((await visit(url)).text).toBe('from a VM')
    },
    60 * minutes,
  )

  test(
    'does not touch the application while the control plane is replaced',
    async () => {
      const { text: began } = await visit(url, '/began')
      const { operation } = await tenant.owner.begin('POST', `${path}/${server.id}/machines/cp/replace`)
      await operation.success(bootsWithinMs)
      expect(await visit(url, '/began')).toMatchObject({ status: 200, text: began })
    },
    bootsWithinMs,
  )

  test(
    'restarts a worker to give it another size',
    async () => {
      const changes = { worker_instance_type: 'small' }
      const { operation } = await tenant.owner.deployServers.update(server.id, changes)
      await operation.success(bootsWithinMs)
      expect(await tenant.owner.deployServers.get(server.id)).toMatchObject({
        status: 'ready',
        workers: [{ name: 'w1', registered: true, instance_type: 'small' }],
      })
      expect((await vms()).items).toMatchObject([{ name: 'cp' }, { name: 'w1', memory_mib: 1152 }])
    },
    bootsWithinMs,
  )

  test(
    'is deleted with everything that it has made',
    async () => {
      const { items } = await vms()
      await (await tenant.owner.deployServers.delete(server.id)).operation.success(10 * minutes)
      expect(await tenant.holds()).toEqual(holdsNothing)
      expect(await tenant.storage()).toEqual({ disk_gib: 0, reservations: 0 })
      for (const { id } of items) expect(await processesWith(id)).toEqual([])
    },
    15 * minutes,
  )
})
