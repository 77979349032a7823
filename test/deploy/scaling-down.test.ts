import { expect, test } from '@jest/globals'
import { Deployment } from '../../models/deploy/deployments.ts'
import { loadAppImages } from '../support/app-images.ts'
import { applicationsOf } from '../support/clients/applications.ts'
import { eventually } from '../support/eventually.ts'
import { runOnMachine } from '../support/machines-inside.ts'
import { makeTenant } from '../support/tenants.ts'
import { visit, visitors } from '../support/visits.ts'

// A removal of workers while an application is being deployed to one of them.

/** Serves once it is told to. */
const command = [
  'sh',
  '-c',
  'until [ -e /go ]; do sleep 0.1; done; mkdir /w; echo "$VERSION" >/w/index.html; exec httpd -f -p "$PORT" -h /w',
]

test('a worker is removed once the deployments that use it have ended, and their releases have moved', async () => {
  const tenant = await makeTenant()
  const { owner } = tenant
  const server = await owner.deployServers.make({ worker_count: 2 })
  await loadAppImages(owner, server)
  const apps = applicationsOf(owner, server.id)
  const placesOf = async (_id: string | null): Promise<string[]> =>
    (await Deployment.findOne({ _id, tenant_id: tenant.id }).lean())?.places.map(({ node }) => node) ?? []
  const app = await apps.make()
  expect(await placesOf(app.deployment_id)).toEqual(['w1'])
  const visiting = visitors(app.url)

  await apps.change(app.id, { command })
  const next = await apps.deploy(app.id, { tag: 'v2' })
  await eventually(async () => (await placesOf(next.id)).length > 0)
  expect(await placesOf(next.id)).toEqual(['w2'])
  const { operation } = await owner.deployServers.update(server.id, { worker_count: 1 })
  await operation.says(/^moving the applications away from w2/)
  const machineOf = (name: string) => server.workers.find((one) => one.name === name)?.machine_id ?? ''
  const told = 'for id in $(docker ps -q -f label=keelson.deployment); do docker exec $id touch /go; done'
  const tell = (name: string) => runOnMachine(owner, machineOf(name), told)
  const hasEnded = async (): Promise<boolean> => (await apps.deployment(next.id)).operation_id === null
  await eventually(async () => {
    await tell('w2')
    return hasEnded()
  })
  await next.operation.success()
  await eventually(async () => {
    await tell('w1')
    return operation.hasEnded()
  })
  await operation.success()
  const { deployment_id, status } = await apps.get(app.id)
  expect([status, await placesOf(deployment_id)]).toEqual(['running', ['w1']])
  expect((await visit(app.url)).text).toBe('v2')
  await visiting.stop()
  expect(visiting.failures).toEqual([])
})
