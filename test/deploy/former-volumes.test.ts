import { beforeAll, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import type { DeployServerBody } from '../support/client.ts'
import { databasesOf } from '../support/clients/databases.ts'
import { insideOf, memoryOf, type Written } from '../support/database-insides.ts'
import { makeDatabaseImages } from '../support/database-images.ts'
import { describeEngines } from '../support/describe-engines.ts'
import { sampled } from '../support/sampled.ts'
import { sharedServer } from '../support/shared-server.ts'
import type { TestTenant } from '../support/tenants.ts'

// The way back from a restore or an upgrade: the former volume takes its place again.

let tenant: TestTenant
let server: DeployServerBody
let databases: ReturnType<typeof databasesOf>
let inside: ReturnType<typeof insideOf>

beforeAll(async () => {
  ;({ tenant, server } = await sharedServer())
  databases = databasesOf(tenant.owner, server.id)
  inside = insideOf(tenant, server)
})

const upgrades: [Written, string, string][] = [
  ['redis', '7.4.5', '8.2.1'],
  ['postgresql', '16.10', '17.6'],
]

/** A database with rows, that was upgraded. */
async function upgraded(type: Written, version: string, next: string) {
  await makeDatabaseImages(type)
  const { id } = await databases.make({ type, memory_mib: memoryOf[type], version })
  await inside.write(id, type)
  const written = await inside.digest(id, type)
  await (await databases.upgrade(id, next)).operation.success()
  const { former_volumes } = await databases.get(id)
  return { id, written, volume: former_volumes[0]?.id ?? '' }
}

const remove = async (id: string) => {
  await (await databases.delete(id)).operation.success()
  expect(await inside.volumes(id)).toEqual([])
}

describeEngines('a database', () => {
  test.each(sampled(upgrades, 1))(
    'of %s goes back to what it was before an upgrade, and forth again',
    async (type, version, next) => {
      const { id, written, volume } = await upgraded(type, version, next)
      const { connection_string } = await databases.get(id)
      await inside.clear(id, type)
      await (await databases.goBack(id, volume)).operation.success()
      const back = await databases.get(id)
      const former_volumes = [{ version: next }]
      expect(back).toMatchObject({ status: 'running', version, connection_string, former_volumes })
      expect(await inside.isOfTag(id, type, version)).toBe(true)
      expect(await inside.digest(id, type)).toBe(written)

      await (await databases.stop(id)).operation.success()
      await (await databases.goBack(id, back.former_volumes[0]?.id ?? '')).operation.success()
      const after = { status: 'running', version: next, former_volumes: [{ id: volume, version }] }
      expect(await databases.get(id)).toMatchObject(after)
      expect(await inside.isOfTag(id, type, next)).toBe(true)
      if (type === 'redis') expect(await inside.count(id, type)).toBe(0)
      expect(await inside.volumes(id)).toHaveLength(2)

      await databases.deleteFormerVolume(id, volume)
      await (await databases.restart(id)).operation.success()
      expect(await inside.volumes(id)).toHaveLength(1)
      await remove(id)
    },
  )

  test('stays as it is if it does not run with its former volume, or if that is cancelled', async () => {
    const [type, version, next] = ['redis', '7.4.5', '8.2.1'] as const
    const { id, written, volume } = await upgraded(type, version, next)
    const isAsBefore = async () => {
      const former_volumes = [{ id: volume, version }]
      expect(await databases.get(id)).toMatchObject({ status: 'running', version: next, former_volumes })
      expect(await inside.digest(id, type)).toBe(written)
      expect(await inside.containers(id)).toHaveLength(1)
    }
    const cancelled = (await databases.goBack(id, volume)).operation
    await cancelled.says(/^ending/)
    await cancelled.cancel()
    expect(await cancelled.end()).toMatchObject({ state: 'cancelled' })
    await isAsBefore()
    expect(await inside.volumes(id)).toHaveLength(2)

    // Nothing can be mounted below a file, so no engine starts.
    const { body } = await databases.addStorage(id, '/etc/passwd/x')
    const { operation } = await databases.goBack(id, volume)
    expect(await operation.end()).toMatchObject({ state: 'failed', error: { code: 'service_failed' } })
    await isAsBefore()
    expect(await inside.volumes(id)).toHaveLength(3) // with that of the storage
    await databases.removeStorage(id, String(body['id']))
    await remove(id)
  })

  test('refuses a volume that is not one of its former ones', async () => {
    const { id } = await databases.make()
    const fault = { pointer: '/volume_id', message: 'is not one of `former_volumes`' }
    expect(await databases.askGoingBack(id, newId())).toMatchObject({
      status: 422,
      body: { errors: [fault] },
    })
    await remove(id)
  })
})
