import { beforeAll, expect, test } from '@jest/globals'
import { KeptServiceVolumes } from '../../../models/deploy/kept-service-volumes.ts'
import { withVolumesOn } from '../../../models/deploy/storages.ts'
import { loadAppImages } from '../../support/app-images.ts'
import type { DeployServerBody } from '../../support/client.ts'
import { servicesOf } from '../../support/clients/services.ts'
import { leftOfServices } from '../../support/services-left.ts'
import { makeTenant, type TestTenant } from '../../support/tenants.ts'

// The volumes of a service that was deleted without them stay, whatever the next service of its name is made from.

let tenant: TestTenant
let server: DeployServerBody
let services: ReturnType<typeof servicesOf>
beforeAll(async () => {
  tenant = await makeTenant()
  server = await tenant.owner.deployServers.make()
  await loadAppImages(tenant.owner, server)
  services = servicesOf(tenant.owner, server.id)
})

/** A text with a container that mounts this volume, or none, at /data. */
const textWith = (volume?: string): string => {
  const mounts = volume === undefined ? '' : `, volumes: ["${volume}:/data"]`
  const app = `{ image: "demo:v1", mem_limit: 16m, stop_grace_period: 1s, command: [sleep, "100000"]${mounts} }`
  return `services: { app: ${app} }\nvolumes: { ${volume ?? ''} }`
}

const volumesLeft = async (id: string): Promise<number> =>
  (await leftOfServices(tenant.owner, server, id)).volumes
const noteIn = (id: string): Promise<string> => services.run(id, 'app', 'cat /data/note')
const isPinned = async (id: string): Promise<boolean> => {
  const pinned = await withVolumesOn({ _id: server.id, tenant_id: tenant.id }, 'w1')
  return pinned.some(({ _id }) => _id === id)
}

/** Deletes a service without its volumes, and makes the next one of its name. */
async function again(name: string, id: string, volume?: string): Promise<void> {
  await (await services.delete(id, false)).operation.success()
  const next = await services.make({ name, docker_compose: textWith(volume) })
  expect(next.id).toBe(id)
}

test('a service from another text has the volumes of the former one, until it is deleted with them', async () => {
  const { id, name } = await services.make({ docker_compose: textWith('content') })
  expect(await services.run(id, 'app', 'echo kept >/data/note; cat /data/note')).toBe('kept')
  await again(name, id, 'other')
  expect((await services.get(id))['volumes']).toEqual(['content', 'other'])
  await again(name, id)
  expect((await services.get(id))['volumes']).toEqual(['content', 'other'])
  expect(await volumesLeft(id)).toBe(2)
  expect(await isPinned(id)).toBe(true)
  await (await services.update(id, { docker_compose: textWith('content') })).operation.success()
  expect(await noteIn(id)).toBe('kept')
  await (await services.delete(id)).operation.success()
  expect(await volumesLeft(id)).toBe(0)
})

test('volumes that a change of the text left out are kept over a deletion', async () => {
  const { id, name } = await services.make({ docker_compose: textWith('content') })
  await services.run(id, 'app', 'echo kept >/data/note')
  await (await services.update(id, { docker_compose: textWith() })).operation.success()
  await again(name, id)
  await (await services.update(id, { docker_compose: textWith('content') })).operation.success()
  expect(await noteIn(id)).toBe('kept')
  await (await services.delete(id)).operation.success()
})

test('volumes that a former release kept, without their names, go only with all', async () => {
  const { id, name } = await services.make({ docker_compose: textWith('content') })
  await services.run(id, 'app', 'echo kept >/data/note')
  await (await services.delete(id, false)).operation.success()
  const forget = { $unset: { volumes: 1 } } as const
  await KeptServiceVolumes.updateOne({ _id: id, tenant_id: tenant.id }, forget)
  await services.make({ name, docker_compose: textWith() })
  expect(await isPinned(id)).toBe(true)
  await again(name, id)
  await (await services.do(id, 'restart')).operation.success()
  expect(await volumesLeft(id)).toBe(1)
  await (await services.update(id, { docker_compose: textWith('content') })).operation.success()
  expect(await noteIn(id)).toBe('kept')
  await (await services.delete(id)).operation.success()
  expect(await volumesLeft(id)).toBe(0)
})
