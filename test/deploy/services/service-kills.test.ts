import { beforeAll, expect, test } from '@jest/globals'
import { loadAppImages } from '../../support/app-images.ts'
import type { Accepted, DeployServerBody } from '../../support/client.ts'
import { servicesOf } from '../../support/clients/services.ts'
import { composed } from '../../support/composed.ts'
import { eventually } from '../../support/eventually.ts'
import { inTime, killedAt } from '../../support/killed-at.ts'
import { innerEngine } from '../../support/machines-inside.ts'
import { platform } from '../../support/platform.ts'
import { sampled } from '../../support/sampled.ts'
import { makeTenant, type TestTenant } from '../../support/tenants.ts'
import { visit } from '../../support/visits.ts'

// If a process is killed (-9) while a service is created, changed or deleted, it ends as requested, and nothing is left
// over. The tests look at the worker's engine and at what visitors get, not only at the records.

const roles = ['worker', 'host', 'api', 'temporal', 'mongodb'] as const
type Role = (typeof roles)[number]

let tenant: TestTenant
let server: DeployServerBody
let services: ReturnType<typeof servicesOf>
beforeAll(async () => {
  tenant = await makeTenant()
  server = await tenant.owner.deployServers.make()
  await loadAppImages(tenant.owner, server)
  services = servicesOf(tenant.owner, server.id)
})

/** Kills when the operation has come to a step that begins so, and waits until it has succeeded. Returns whether it ran when killed. */
const killed = (step: string, role: Role, { operation }: Accepted): Promise<boolean> =>
  killedAt(step, () => platform.restartKilled(role), operation)

const inner = () => innerEngine(tenant.owner, server.workers[0]?.machine_id ?? '')
const filters = { label: ['keelson.composed'] }
const containers = async (): Promise<string[]> =>
  (await (await inner()).listContainers({ filters })).map(({ Labels }) => Labels['keelson.container'] ?? '')
const volumes = async (): Promise<number> => (await (await inner()).listVolumes({ filters })).Volumes.length

async function shows(id: string, words: string): Promise<void> {
  const service = await services.get(id)
  expect(service).toMatchObject({ status: 'running', operation_id: null })
  const url = service.containers.find(({ name }) => name === 'app')?.ports[0]?.url ?? ''
  await eventually(async () => (await visit(url, '/cgi-bin/look')).text === words)
  await eventually(async () => (await containers()).toSorted().join() === 'app,store,worker')
}

async function nothingIsLeft(): Promise<void> {
  expect([await containers(), await volumes()]).toEqual([[], 0])
}

async function remove(id: string): Promise<void> {
  await (await services.delete(id)).operation.success()
  await nothingIsLeft()
}

const points = (...steps: string[]): { role: Role; step: string }[] =>
  steps.flatMap((step) => roles.map((role) => ({ role, step })))

test.each(sampled(points('starting store', 'starting app', 'sending requests'), 1))(
  'a service is created whole if $role is killed while it is $step',
  ({ role, step }) =>
    inTime(async () => {
      const created = await services.create({ docker_compose: composed() })
      const ran = await killed(step, role, created)
      await shows(created.id, 'hello v1 0')
      await remove(created.id)
      return ran
    }),
)

test.each(sampled(points('starting app', 'waiting until', 'sending requests'), 1))(
  'a service is changed and keeps its data if $role is killed while it is $step',
  ({ role, step }) =>
    inTime(async () => {
      const { id } = await services.make({ docker_compose: composed() })
      await services.run(id, 'store', 'echo 7 >/data/count')
      const changed = await services.update(id, { docker_compose: composed({ greeting: 'new', tag: 'v2' }) })
      const ran = await killed(step, role, changed)
      await shows(id, 'new v2 7')
      await remove(id)
      return ran
    }),
)

test.each(sampled(points('stopping its containers', 'destroying its volumes'), 1))(
  'a service is deleted whole if $role is killed while it is $step',
  ({ role, step }) =>
    inTime(async () => {
      const { id } = await services.make({ docker_compose: composed() })
      const ran = await killed(step, role, await services.delete(id))
      await nothingIsLeft()
      return ran
    }),
)
