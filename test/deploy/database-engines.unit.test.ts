import { spawnSync } from 'node:child_process'
import { describe, expect, test } from '@jest/globals'
import { databaseMetrics } from '../../lib/deploy-protocol.ts'
import { databaseTypes, engineOf, engines, imageOf, upgradesOf } from '../../models/deploy/engines/index.ts'

const credentials = { user: 'u', password: 'secret', database: 'd', root_password: 'root' }

describe.each(databaseTypes)('%s', (type) => {
  const engine = engineOf(type)

  test('has pinned versions, the newest first', () => {
    expect(engine.versions.length).toBeGreaterThan(0)
    for (const version of engine.versions) expect(version).toMatch(/^\d+(\.\d+)+$/)
    const first = engine.versions[0] ?? ''
    for (const version of engine.versions) expect(upgradesOf(type, first)).not.toContain(version)
  })

  test('ends within the time for which a leaving worker waits', () => {
    expect(engine.stop_grace_sec).toBeLessThanOrEqual(120)
  })

  test('passes its password to clients and to the engine', () => {
    expect(engine.url(credentials, 'host:1')).toContain('secret')
    const given = [
      ...Object.values(engine.env(credentials)),
      ...engine.command({ memory_mib: engine.memory_mib.usual, configuration: {}, credentials }),
    ]
    expect(given).toContain('secret')
  })

  test('makes users of attached instances with a name and a password, and removes them by their name', () => {
    const { list, make, remove, url = engine.url } = engine.users
    expect(make).toMatch(/ATTACHED_USER.*ATTACHED_PASSWORD/s)
    expect(remove).toContain('ATTACHED_USER')
    for (const command of [list, remove]) expect(command).not.toContain('ATTACHED_PASSWORD')
    expect(url({ ...credentials, user: 'k_1' }, 'host:1')).toMatch(/^\w+:\/\/k_1:secret@host:1\//)
  })

  // A copy's scripts take data from the environment and the input: nothing of theirs depends on the database.
  test.each(['dump', 'restore', 'count'] as const)(
    'has a script to %s that stops at the first error',
    (what) => {
      expect(engine.copies[what]).toMatch(/^set -eu\n/)
      expect(spawnSync('/bin/sh', ['-n'], { input: engine.copies[what] })).toMatchObject({ status: 0 })
    },
  )

  test('has scripts for its archive, if it can have one', () => {
    const { dump, fill, fillSegments, begin, adopt, open, look, read, forget, close } = engine.archive ?? {}
    const scripts = [dump, fill, fillSegments, begin, adopt, open, look, read, forget, close]
    for (const script of scripts.flatMap((one) => one ?? []))
      expect(spawnSync('/bin/sh', ['-n'], { input: script })).toMatchObject({ status: 0 })
  })

  test('tells each metric, or says why not', () => {
    const { script, without } = engine.metrics
    const told = databaseMetrics.filter((name) => new RegExp(`\\b${name}\\b`).test(script))
    expect([...told, ...Object.keys(without)].toSorted()).toEqual(databaseMetrics.toSorted())
    expect(spawnSync('/bin/sh', ['-n'], { input: script })).toMatchObject({ status: 0 })
  })

  test('takes no setting that it does not name', () => {
    expect(engine.configuration.safeParse({}).success).toBe(true)
    expect(engine.configuration.safeParse({ 'no-such-setting': 1 }).success).toBe(false)
  })
})

test('upgrades stay in a line and are newer', () => {
  expect(upgradesOf('postgresql', '17.5')).toEqual(['17.6'])
  expect(upgradesOf('postgresql', '17.6')).toEqual([])
  expect(upgradesOf('postgresql', '15.3')).toEqual(['15.14'])
  expect(upgradesOf('mysql', '8.4.5')).toEqual(['8.4.6'])
  expect(upgradesOf('redis', '8.0.3')).toEqual(['8.2.1'])
})

test('an operator’s image replaces the public one, with the same tags', () => {
  expect(imageOf('keydb', '6.3.4', {})).toBe('eqalpha/keydb:x86_64_v6.3.4')
  expect(imageOf('redis', '8.2.1', { redis: 'mirror:5000/redis' })).toBe('mirror:5000/redis:8.2.1')
})

test('settings reach the engines', () => {
  const of = { memory_mib: 256, credentials }
  expect(engines.postgresql.command({ ...of, configuration: { work_mem: '8MB' } })).toEqual([
    'postgres',
    '-c',
    'shared_buffers=64MB',
    '-c',
    'work_mem=8MB',
    ...(engines.postgresql.archive?.options ?? []),
  ])
  expect(engines.mariadb.command({ ...of, configuration: { max_connections: 50 } })).toContain(
    '--max_connections=50',
  )
  expect(engines.clickhouse.command({ ...of, configuration: {} })).toEqual([])
})
