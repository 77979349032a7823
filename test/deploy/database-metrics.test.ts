import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { databaseMetrics } from '../../lib/deploy-protocol.ts'
import { engineOf } from '../../models/deploy/engines/index.ts'
import { metricsIn } from '../../worker/host/database-sampler.ts'
import type { DeployServerBody } from '../support/client.ts'
import { databasesOf } from '../support/clients/databases.ts'
import { removeTestContainers } from '../support/containers.ts'
import { insideOf, rows } from '../support/database-insides.ts'
import { hasClickHouse, hasEngines, makeDatabaseImages } from '../support/database-images.ts'
import { describeEngines } from '../support/describe-engines.ts'
import { runEngine } from '../support/engine-copies.ts'
import { eventually } from '../support/eventually.ts'
import { testLong } from '../support/long-tests.ts'
import { sampled } from '../support/sampled.ts'
import { sharedServer } from '../support/shared-server.ts'
import type { TestTenant } from '../support/tenants.ts'

// What engines of databases tell of themselves, on engines that can be had here.

afterAll(removeTestContainers)

const all = ['postgresql', 'mariadb', 'mongodb', 'redis', 'clickhouse'] as const
const here = all.filter((type) => hasEngines && (type !== 'clickhouse' || hasClickHouse))
describeEngines('the script for the metrics', () => {
  test.each(sampled([...here], 2))('of %s tells what it says that it tells', async (type) => {
    await makeDatabaseImages(type)
    const { script, without } = engineOf(type).metrics
    const engine = await runEngine(type)
    const { written, said } = await engine.run(script)
    const told = metricsIn(written.toString())
    // The only ClickHouse here is older than its table of this.
    const missing = [...Object.keys(without), ...(type === 'clickhouse' ? ['connections_max'] : [])]
    expect([...Object.keys(told), ...missing].toSorted()).toEqual(databaseMetrics.toSorted())
    expect(`${written.toString()}${said}`).not.toContain('pa1') // the password
    expect(await engine.ask('find /tmp -name "*keelson*"')).toBe('')
  })
})

describeEngines('the metrics of a database', () => {
  let tenant: TestTenant
  let server: DeployServerBody
  let databases: ReturnType<typeof databasesOf>
  let inside: ReturnType<typeof insideOf>

  beforeAll(async () => {
    ;({ tenant, server } = await sharedServer())
    databases = databasesOf(tenant.owner, server.id)
    inside = insideOf(tenant, server)
  })

  // One test for two engines, because each is asked once a minute. Short runs have the scripts above and the sampler’s test.
  testLong('follow its clients and its data, and have no points while it is stopped', async () => {
    await makeDatabaseImages('postgresql', 'redis')
    const [sql, keys] = await Promise.all([
      databases.make({ type: 'postgresql', memory_mib: 96 }),
      databases.make({ type: 'redis' }),
    ])
    const seriesOf = async (id: string, name: string) =>
      (await databases.metrics(id)).find((one) => one.name === name)?.points ?? []
    const lastOf = async (id: string, name: string) => (await seriesOf(id, name)).at(-1)?.[1] ?? -1
    const both = async (is: (id: string) => Promise<boolean>) => (await is(sql.id)) && (await is(keys.id))
    await eventually(() => both(async (id) => (await lastOf(id, 'connections')) === 0))
    expect([await lastOf(sql.id, 'connections_max'), await lastOf(keys.id, 'connections_max')]).toEqual([
      100, 10_000,
    ])
    const empty = {
      [sql.id]: await lastOf(sql.id, 'data_bytes'),
      [keys.id]: await lastOf(keys.id, 'data_bytes'),
    }
    for (const bytes of Object.values(empty)) expect(bytes).toBeGreaterThan(0)

    const waiting = 'psql -h /tmp -U "$POSTGRES_USER" -d "$POSTGRES_DB" -c "SELECT pg_sleep(600)"'
    await inside.runIn(sql.id, `${waiting} >/dev/null 2>&1 &`)
    await inside.runIn(keys.id, 'redis-cli blpop nothing 600 >/dev/null 2>&1 &')
    await inside.write(sql.id, 'postgresql')
    await inside.write(keys.id, 'redis')
    const follows = async (id: string) =>
      (await lastOf(id, 'connections')) === 1 && (await lastOf(id, 'data_bytes')) > (empty[id] ?? 0)
    await eventually(() => both(follows))
    await both(async (id) => (expect(await lastOf(id, 'queries')).toBeGreaterThan(0), true))
    expect(await lastOf(keys.id, 'keys')).toBe(rows)
    expect(await lastOf(sql.id, 'cache_hit_ratio')).toBeGreaterThan(0)

    await (await databases.stop(sql.id)).operation.success()
    const stoppedAt = new Date().toISOString()
    const since = async (id: string) =>
      (await seriesOf(id, 'connections')).filter(([time]) => time > stoppedAt)
    await eventually(async () => (await since(keys.id)).length >= 2)
    expect(await since(sql.id)).toEqual([])
    expect(await lastOf(keys.id, 'connections')).toBe(1)
  })
})
