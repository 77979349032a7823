import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { asRoot } from '../support/as-root.ts'
import type { DeployServerBody } from '../support/client.ts'
import { type DatabaseBody, databasesOf } from '../support/clients/databases.ts'
import { docker } from '../support/containers.ts'
import { hasEngines, makeDatabaseImages, putPsql } from '../support/database-images.ts'
import { describeEngines } from '../support/describe-engines.ts'
import { testDrawn } from '../support/drawn.ts'
import { innerEngine } from '../support/machines-inside.ts'
import { blocksOf, pageOf } from '../../script/lib/pages.ts'
import { openReaderShell, refusalsIn, statesIn } from '../support/paste.ts'
import { startReceiver } from '../support/receiver.ts'
import { hasS3Server, openS3Server } from '../support/s3-server.ts'
import { docsServers } from '../support/stack.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'
import { visit } from '../support/visits.ts'

// The examples of the pages about what runs on a deploy server, pasted into a shell as a reader would, on one deploy server. A run
// draws half of them, the long form has all, from the top.

let tenant: TestTenant
let server: DeployServerBody
let home: string
let shell: Awaited<ReturnType<typeof openReaderShell>>
const servers: { close(): Promise<void> }[] = []
beforeAll(async () => {
  tenant = await makeTenant()
  const size = { worker_count: 2, worker_instance_type: 'medium', worker_disk_gib: 4 }
  server = await tenant.owner.deployServers.make(size)
  home = await mkdtemp(join(tmpdir(), 'reader-'))
  if (hasEngines) await putPsql(home)
  const env = { DEPLOY: server.id, HOME: home, PATH: `${home}:${process.env['PATH']}` }
  shell = await openReaderShell(tenant.owner.token, env)
  await shell.paste(`cd '${home}'`)
})
afterAll(async () => {
  await shell?.close()
  for (const one of servers) await one.close()
  if (home) await rm(home, { recursive: true })
})

const valueOf = async (name: string): Promise<string> => (await shell.paste(`echo "$${name}"`)).trim()
/** What was printed last, which may follow something else in its line. */
const lastOf = (said: string): unknown => JSON.parse(said.split(/\n|(?<=\})(?=\{)/).at(-1) ?? '')

describe('docs/services.md', () => {
  let blocks: string[]
  beforeAll(async () => {
    blocks = blocksOf(await pageOf('services'))
    expect(blocks).toHaveLength(4)
    for (const { machine_id } of server.workers) {
      const engine = await innerEngine(tenant.owner, machine_id)
      await text(await engine.loadImage(await docker.getImage('busybox:latest').get()))
      await engine.getImage('busybox:latest').tag({ repo: 'busybox', tag: '1.36.1' })
    }
  })

  testDrawn('a service of a template, its changes, its output, tasks and storages', async () => {
    const [made = '', compose = '', changes = '', rest = ''] = blocks
    const service = lastOf(await shell.paste(made)) as { containers: { ports: { url: string }[] }[] }
    expect(service).toMatchObject({ name: 'page', status: 'running' })
    const url = service.containers[0]?.ports[0]?.url ?? ''
    expect((await visit(url)).text).toContain('<h1>Hello</h1>')
    expect(await shell.paste(compose)).toMatch(/"docker_compose":"[^"]*image: busybox/)

    const said = await shell.paste(changes)
    expect(refusalsIn(said)).toEqual([])
    expect(said).toContain('"change":"changed"')
    expect(statesIn(said)).toEqual(['succeeded', 'succeeded', 'succeeded', 'succeeded'])
    expect((await visit(url)).text).toContain('<h1>My page</h1>')

    const more = await shell.paste(rest)
    expect(refusalsIn(more)).toEqual([])
    expect(more).toContain('"command":"rm -f /tmp/old-*"')
    expect(more).toContain('"mount_path":"/more"')
    expect(statesIn(more)).toEqual(['succeeded'])
  })
})

describeEngines('docs/databases.md', () => {
  let blocks: string[]
  let databases: ReturnType<typeof databasesOf>
  beforeAll(async () => {
    await makeDatabaseImages('postgresql')
    blocks = blocksOf(await pageOf('databases'))
    expect(blocks).toHaveLength(12)
    databases = databasesOf(tenant.owner, server.id)
  })

  const at = async (variable: string): Promise<DatabaseBody> => databases.get(await valueOf(variable))
  const named = async (name: string) => (await databases.list()).filter((one) => one['name'] === name)

  test('a database, its changes, its output and metrics', async () => {
    const [made = '', changes = '', looks = ''] = blocks
    expect(lastOf(await shell.paste(made))).toMatchObject({
      status: 'running',
      version: '17.5',
      connection_string: expect.stringMatching(/^postgresql:/),
    })
    expect(statesIn(await shell.paste(changes))).toEqual(['succeeded', 'succeeded', 'succeeded'])
    expect(await at('DB')).toMatchObject({
      status: 'running',
      version: '17.6',
      memory_mib: 384,
      pending_changes: false,
    })
    const seen = await shell.paste(looks)
    expect(refusalsIn(seen)).toEqual([])
    expect(seen).toContain('database system is ready to accept connections')
    expect(seen).toContain('"series":[')
    expect(await at('DB')).toMatchObject({ pending_changes: true }) // the storage
  })

  testDrawn('a database that is published is reached by psql with its certificate', async () => {
    const [, , , published = '', reached = ''] = blocks
    expect(await shell.paste(published)).toContain('sslmode=require')
    const said = await shell.paste(reached)
    expect(said).toMatch(/^ PostgreSQL \d/m)
    expect(statesIn(said)).toEqual(['succeeded'])
    expect(await at('DB')).toMatchObject({ public_port: null })
  })

  asRoot('with networks', () => {
    testDrawn('a database that is attached to a container, and detached', async () => {
      const said = await shell.paste(blocks[5] ?? '')
      expect(refusalsIn(said)).toEqual([])
      expect(statesIn(said)).toEqual(['succeeded', 'succeeded'])
      expect(said).toMatch(/"DATABASE_URL":"postgresql:\/\/k_/)
    })
  })

  testDrawn('a backup, its schedule, a restore that is undone, and a copy', async () => {
    const said = await shell.paste(blocks[6] ?? '')
    expect(refusalsIn(said)).toEqual([])
    expect(statesIn(said)).toEqual(['succeeded', 'succeeded'])
    const { former_volumes } = await at('DB')
    expect(former_volumes).toHaveLength(1)
    expect(await named('ledger-copy')).toMatchObject([{ status: 'running' }])
    const undone = await shell.paste(blocks[7] ?? '')
    expect(statesIn(undone)).toEqual(['succeeded'])
    const [now, ...others] = (await at('DB')).former_volumes
    expect(others).toEqual([])
    expect(now?.id).not.toBe(former_volumes[0]?.id)
  })

  const testS3 = hasS3Server ? testDrawn : test.skip
  testS3('a backup in a bucket', async () => {
    const s3 = await openS3Server(docsServers.s3)
    servers.push(s3)
    await s3.makeBucket('acme-backups')
    const mine = (blocks[8] ?? '')
      .replace('https://s3.eu-central-1.amazonaws.com', s3.endpoint)
      .replace('REGION=eu-central-1', 'REGION=us-east-1')
      .replace('PATH_STYLE=false', 'PATH_STYLE=true')
      .replace('AKIAEXAMPLE', s3.access.access_key_id)
      .replace('the-secret-of-the-access-key', s3.access.secret_access_key)
    const said = await shell.paste(mine)
    expect(refusalsIn(said)).toEqual([])
    expect(statesIn(said)).toEqual(['succeeded'])
    expect(lastOf(said)).toMatchObject({ bucket: 'acme-backups', fault: null })
    expect(await s3.keys('acme-backups', 'keelson/')).not.toEqual([])
  })

  testDrawn('a database that is recovered to a moment', async () => {
    const said = await shell.paste(blocks[9] ?? '')
    expect(refusalsIn(said)).toEqual([])
    expect(statesIn(said)).toEqual(['succeeded', 'succeeded'])
    expect(await named('orders-then')).toMatchObject([{ status: 'running' }])
    expect(await at('PG')).toMatchObject({ status: 'running', point_in_time: { enabled: false } })
  })

  testDrawn('a major upgrade', async () => {
    const said = await shell.paste(blocks[10] ?? '')
    expect(said).toContain('"major_upgrades":["17.6"')
    expect(statesIn(said)).toEqual(['succeeded'])
    expect(await at('OLD')).toMatchObject({ status: 'running', version: '17.6' })
  })

  testDrawn('a deletion that leaves the volumes to the next database, and one that does not', async () => {
    const said = await shell.paste(blocks[11] ?? '')
    expect(refusalsIn(said)).toEqual([])
    expect(statesIn(said)).toEqual(['succeeded', 'succeeded', 'succeeded'])
    expect(said).toContain(`{"items":[{"id":"${await valueOf('DB')}"`)
    expect(await named('ledger')).toEqual([])
    expect(await databases.keptVolumes()).toEqual([])
  })
})

test('docs/events.md: a webhook and mails, and a test event that is delivered', async () => {
  const [block = '', ...rest] = blocksOf(await pageOf('events'))
  expect(rest).toEqual([])
  const receiver = await startReceiver(docsServers.receiver)
  servers.push(receiver)
  const { email } = await tenant.owner.get<{ email: string }>('/api/v1/account')
  const mine = block
    .replace('https://hooks.example.com/deploys', receiver.url('/deploys'))
    .replace('ada@example.com', email)
  const said = await shell.paste(mine)
  expect(refusalsIn(said)).toEqual([])
  expect(lastOf(said)).toMatchObject({ items: [{ kind: 'test' }] })
  const [received] = await receiver.arrived('/deploys')
  expect(JSON.parse(received?.body ?? '')).toMatchObject({ type: 'test' })
})
