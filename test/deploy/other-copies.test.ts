import { beforeAll, expect, test } from '@jest/globals'
import type { DeployServerBody } from '../support/client.ts'
import { databasesOf } from '../support/clients/databases.ts'
import { insideOf, rows } from '../support/database-insides.ts'
import { hasEngines, makeDatabaseImages } from '../support/database-images.ts'
import { describeEngines } from '../support/describe-engines.ts'
import { momentsOf } from '../support/moments.ts'
import { sharedServer } from '../support/shared-server.ts'
import type { TestTenant } from '../support/tenants.ts'

// Backups that one database takes from another: with its settings, and with its password.

let tenant: TestTenant
let server: DeployServerBody
let databases: ReturnType<typeof databasesOf>
let inside: ReturnType<typeof insideOf>

beforeAll(async () => {
  ;({ tenant, server } = await sharedServer())
  if (hasEngines) await makeDatabaseImages('redis', 'postgresql')
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
      error: { code: 'backup_failed', detail: expect.stringContaining('more than 16 databases') },
    })
    expect(await inside.containers(other.id)).toEqual([container])
    expect(await inside.count(other.id, 'redis')).toBe(rows)

    await databases.change(other.id, { configuration })
    await (await databases.restore(other.id, execution)).operation.success()
    expect(await inside.runIn(other.id, 'redis-cli -n 20 get word')).toBe('kept')
    for (const one of [id, other.id]) await remove(one)
  })

  test('that is a base leaves a PostgreSQL its own connection string', async () => {
    const moments = momentsOf(tenant, databases, inside)
    const id = await moments.make()
    await inside.write(id, 'postgresql')
    const { id: execution, operation } = await databases.backUp(id)
    await operation.success()
    expect(await databases.execution(execution)).toMatchObject({ method: 'base' })

    const other = await databases.make({ type: 'postgresql', memory_mib: 96 })
    await (await databases.restore(other.id, execution)).operation.success()
    const { connection_string: url } = await databases.get(other.id)
    expect(url).toBe(other.connection_string)
    const ask = (at: string) =>
      inside.run(
        `docker run --rm keelson/test-postgresql:17.6 psql '${at}' -tAc 'SELECT count(*) FROM rows' 2>&1 || true`,
      )
    expect(await ask(String(url))).toMatch(new RegExp(`^${rows}$`, 'm'))
    const former = String(url).replace(
      /:\w+@/,
      `:${passwordOf((await databases.get(id)).connection_string)}@`,
    )
    expect(await ask(former)).toContain('password authentication failed')
    for (const one of [id, other.id]) await remove(one)
  })
})

const passwordOf = (url: string | null) => /:(\w+)@/.exec(url ?? '')?.[1]
