import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import type { Configuration } from '../../models/deploy/engines/engine.ts'
import { engineOf } from '../../models/deploy/engines/index.ts'
import { removeTestContainers } from '../support/containers.ts'
import { copiedData } from '../support/copied-data.ts'
import {
  hasClickHouse,
  hasEngines,
  hasNewerPostgresql,
  makeDatabaseImages,
} from '../support/database-images.ts'
import { inPostgresql } from '../support/database-insides.ts'
import { describeEngines } from '../support/describe-engines.ts'
import { copied, type Dumped, type RunningEngine, runEngine } from '../support/engine-copies.ts'
import { eventually } from '../support/eventually.ts'

// The scripts by which each engine's data is copied out, in, and counted, on engines that can be had here.

const here = (hasEngines ? (Object.keys(copiedData) as (keyof typeof copiedData)[]) : []).filter(
  (type) => type !== 'clickhouse' || hasClickHouse,
)

afterAll(removeTestContainers)

// `describe.each` of no engines is a failure.
const describeCopies = here.length ? describe.each(here) : describe.skip.each(here)

describeCopies('a copy of %s', (type) => {
  const data = copiedData[type]
  let engine: RunningEngine
  let dumped: Dumped

  beforeAll(async () => {
    await makeDatabaseImages(type)
    engine = await runEngine(type)
    await engine.ask(data.write)
    const writing = engine.run(data.keepWriting)
    dumped = await engine.dump()
    await engine.ask('touch /tmp/stop')
    expect((await writing).code).toBe(0)
  })

  test('is whole and says what is in it, while clients write', () => {
    expect(dumped).toMatchObject({ code: 0 })
    for (const [name, least] of Object.entries(data.contains))
      expect([name, (dumped.counts.get(name)?.[0] ?? -1) >= least]).toEqual([name, true])
  })

  test('becomes the same data in another engine, as many as it says', async () => {
    const other = await runEngine(type)
    expect(await other.restore(dumped.copy)).toMatchObject({ code: 0 })
    const counts = await other.count()
    expect([...counts.keys()].toSorted()).toEqual([...dumped.counts.keys()].toSorted())
    for (const [name, [least, most]] of dumped.counts) {
      expect(counts.get(name)).toBeGreaterThanOrEqual(least)
      expect(counts.get(name)).toBeLessThanOrEqual(most)
    }
    expect(await other.ask(data.read)).toBe(await engine.ask(data.read))

    // Also after a crash: nothing is left in the memory alone.
    const before = await other.count()
    await other.container.kill()
    await other.container.start()
    await eventually(async () => (await other.run(engineOf(type).healthy)).code === 0)
    expect(await other.count()).toEqual(before)
    expect(await other.ask('ls /tmp; find / -xdev -name "*keelson*" 2>/dev/null || true')).not.toMatch(
      /keelson/,
    )
    await other.container.remove({ force: true, v: true })
  })

  test('leaves the engine that takes it its own password', async () => {
    const other = await runEngine(type, { password: 'pb2' })
    expect(await other.restore(dumped.copy)).toMatchObject({ code: 0 })
    const { healthy, env } = engineOf(type)
    expect((await other.run(healthy)).code).toBe(0)
    const former = Object.entries(env(copied)).map(([name, value]) => `export ${name}=${value}`)
    expect((await other.run([...former, healthy].join('\n'))).code).not.toBe(0)
    await other.container.remove({ force: true, v: true })
  })

  test('is refused if it is cut off', async () => {
    const other = await runEngine(type)
    const cut = dumped.copy.subarray(0, Math.floor(dumped.copy.length * 0.6))
    expect((await other.restore(cut)).code).not.toBe(0)
    await other.container.remove({ force: true, v: true })
  })

  test('leaves no process when whoever reads it goes away', async () => {
    const processes = async () =>
      ((await engine.container.top()) as { Processes: string[][] }).Processes.map((of) => of.at(-1) ?? '')
    const { stream, output } = await engine.start(engineOf(type).copies.dump)
    await new Promise((resolve) => output.once('data', resolve))
    stream.destroy()
    const tools = /psql|pg_dump|mariadb-dump|mongodump|redis-c|clickhouse-client|awk|\/bin\/sh -c/
    await eventually(async () => !(await processes()).some((one) => tools.test(one)))
  })

  test('fails if its engine dies meanwhile', async () => {
    const { exec, output, errors } = await engine.start(engineOf(type).copies.dump)
    errors.resume()
    const end = new Promise((resolve) => output.once('end', resolve).resume())
    await engine.container.kill()
    await end
    expect((await exec.inspect()).ExitCode).not.toBe(0)
  })
})

describeEngines('an engine that is started to take a copy', () => {
  test.each<['redis' | 'mariadb', string, Configuration, string]>([
    ['redis', 'more databases than usual', { databases: 64 }, 'redis-cli -n 20 set a b'],
    [
      'mariadb',
      'a value of 9 MiB',
      {},
      `MYSQL_PWD="$MARIADB_ROOT_PASSWORD" mariadb -u root "$MARIADB_DATABASE" -e "
        CREATE TABLE large (b longblob); INSERT INTO large VALUES (repeat('x', 9 * 1024 * 1024))"`,
    ],
  ])('of %s takes %s, which one with the usual settings refuses', async (type, _, configuration, write) => {
    await makeDatabaseImages(type)
    const engine = await runEngine(type, { configuration })
    await engine.ask(write)
    const { code, copy, counts } = await engine.dump()
    expect(code).toBe(0)
    expect((await (await runEngine(type)).restore(copy)).code).not.toBe(0)
    const taker = await runEngine(type, { configuration: engineOf(type).filling?.(configuration) ?? {} })
    expect(await taker.restore(copy)).toMatchObject({ code: 0 })
    expect([...(await taker.count())]).toEqual([...counts].map(([name, [least]]) => [name, least]))
  })
})

const describeUpgrades = hasEngines && hasNewerPostgresql ? describe : describe.skip

const versionOf = (engine: RunningEngine) => engine.ask(inPostgresql('SHOW server_version'))

describeUpgrades('a copy of PostgreSQL', () => {
  test('becomes the same data in a newer major version', async () => {
    await makeDatabaseImages('postgresql')
    const { write, read } = copiedData.postgresql
    const [older, newer] = [
      await runEngine('postgresql', { version: '16.10' }),
      await runEngine('postgresql', { version: '17.6' }),
    ]
    const [from, to] = [Number.parseInt(await versionOf(older)), Number.parseInt(await versionOf(newer))]
    expect(from).toBeLessThan(to)
    await older.ask(write)
    const { code, copy, counts } = await older.dump()
    expect(code).toBe(0)
    expect(await newer.restore(copy)).toMatchObject({ code: 0 })
    expect([...(await newer.count())]).toEqual([...counts].map(([name, [least]]) => [name, least]))
    expect(await newer.ask(read)).toBe(await older.ask(read))
  })
})
