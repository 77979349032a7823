import { beforeAll, expect, test } from '@jest/globals'
import type { DeployServerBody } from '../support/client.ts'
import { databasesOf } from '../support/clients/databases.ts'
import { insideOf, rows } from '../support/database-insides.ts'
import { hasEngines, makeDatabaseImages } from '../support/database-images.ts'
import { describeEngines } from '../support/describe-engines.ts'
import { sharedServer } from '../support/shared-server.ts'
import type { TestTenant } from '../support/tenants.ts'

// Backups that one database takes from another, with other settings.

let tenant: TestTenant
let server: DeployServerBody
let databases: ReturnType<typeof databasesOf>
let inside: ReturnType<typeof insideOf>

beforeAll(async () => {
  ;({ tenant, server } = await sharedServer())
  if (hasEngines) await makeDatabaseImages('redis')
  databases = databasesOf(tenant.owner, server.id)
  inside = insideOf(tenant, server)
})

const remove = async (id: string) => (await databases.delete(id)).operation.success()

describeEngines('a backup of another database', () => {
  test('that has more databases of Redis is compared with its settings, and refused without a restart by one with fewer', async () => {
    const configuration = { databases: 64 }
    const { id } = await databases.make({ configuration })
    await inside.runIn(id, 'redis-cli -n 20 set word kept')
    const { id: execution, operation } = await databases.backUp(id)
    await operation.success()
    expect(await databases.execution(execution)).toMatchObject({
      status: 'succeeded',
      verified: { by: 'restore', rows: 1 },
    })

    const other = await databases.make()
    await inside.write(other.id, 'redis')
    const [container] = await inside.containers(other.id)
    const refused = await databases.restore(other.id, execution)
    expect(await refused.operation.end()).toMatchObject({
      state: 'failed',
      error: { code: 'backup_failed', title: expect.stringContaining('more than 16 databases') },
    })
    expect(await inside.containers(other.id)).toEqual([container])
    expect(await inside.count(other.id, 'redis')).toBe(rows)

    await databases.change(other.id, { configuration })
    await (await databases.restore(other.id, execution)).operation.success()
    expect(await inside.runIn(other.id, 'redis-cli -n 20 get word')).toBe('kept')
    for (const one of [id, other.id]) await remove(one)
  })
})
