import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { nameAppImages } from '../support/app-images.ts'
import { makeCaddy } from '../support/base-images.ts'
import { applicationsOf } from '../support/clients/applications.ts'
import { testDrawn } from '../support/drawn.ts'
import { eventually } from '../support/eventually.ts'
import { blocksOf, pageOf } from '../../script/lib/pages.ts'
import { openReaderShell, refusalsIn, statesIn } from '../support/paste.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'
import { visit } from '../support/visits.ts'

// The examples of docs/deploy-servers.md, from the top to its whole story, which is test/deploy/story.test.ts. Large archives and
// pushes are test/deploy/sending-docs.test.ts. Each test continues from the one before it.

let tenant: TestTenant
let home: string
let shell: Awaited<ReturnType<typeof openReaderShell>>
let blocks: string[]
beforeAll(async () => {
  const [page = ''] = (await pageOf('deploy-servers')).split(/^## A whole story$/m)
  blocks = blocksOf(page).map((block) => block.replaceAll('/tmp/', `${tmpdir()}/`))
  expect(blocks).toHaveLength(15)
  tenant = await makeTenant()
  home = await mkdtemp(join(tmpdir(), 'reader-'))
  shell = await openReaderShell(tenant.owner.token, { HOME: home })
  await shell.paste(`cd '${home}'`)
})
afterAll(async () => {
  await shell?.close()
  if (home) await rm(home, { recursive: true })
})

const paste = (index: number): Promise<string> => shell.paste(blocks[index] ?? '')
const valueOf = async (name: string): Promise<string> => (await shell.paste(`echo "$${name}"`)).trim()
const server = async () => tenant.owner.deployServers.get(await valueOf('DEPLOY'))
const apps = async () => applicationsOf(tenant.owner, await valueOf('DEPLOY'))
const app = async () => (await apps()).get(await valueOf('APP'))

test('a deploy server is made, and changed', async () => {
  const said = await paste(0)
  expect(refusalsIn(said)).toEqual([])
  expect(statesIn(said)).toEqual(['succeeded'])
  const { workers } = await server()
  const grown = { instance_type: 'medium', registered: true }
  expect(workers).toMatchObject([grown, grown, grown])
})

testDrawn('a machine is replaced', async () => {
  const [before] = (await server()).workers
  expect(statesIn(await paste(1))).toEqual(['succeeded'])
  const [after] = (await server()).workers
  expect(after).toMatchObject({ name: 'w1', registered: true })
  expect(after?.machine_id).not.toBe(before?.machine_id)
})

test('an application is made, deployed, and gets an environment', async () => {
  const images = { 'nginx:1.29': 'v1', 'nginx:1.30': 'chatty', 'nginx:1.31': 'v3' } as const
  await nameAppImages(tenant.owner, await server(), images)
  const said = await paste(2)
  expect(refusalsIn(said)).toEqual([])
  expect(statesIn(said)).toEqual(['succeeded', 'succeeded'])
  expect((await visit((await app()).url)).text).toBe('chatty hello')
})

test('a deployment is cancelled, and its log ends', async () => {
  const said = (await paste(3)) + (await paste(4))
  expect(refusalsIn(said)).toEqual([])
  expect(await (await apps()).deployment(await valueOf('NEXT'))).toMatchObject({ status: 'cancelled' })
  expect((await visit((await app()).url)).text).toBe('chatty hello')
})

test('its output, metrics and activity', async () => {
  expect(await paste(5)).toContain('"line":"line 1"')
  const said = await paste(6)
  expect(refusalsIn(said)).toEqual([])
  expect(said).toContain('"series":[')
})

test('a scheduled task runs now', async () => {
  const said = await paste(7)
  expect(statesIn(said)).toEqual(['succeeded'])
  expect(said).toContain('"exit_code":0')
})

test('a storage is mounted by the next deployment', async () => {
  expect(statesIn(await paste(8))).toEqual(['succeeded'])
  // The tag that was asked for last, although its deployment was cancelled.
  expect((await visit((await app()).url)).text).toBe('v3 hello')
})

test('a domain leads to the application, and another one to that', async () => {
  expect(refusalsIn(await paste(9))).toEqual([])
  const { port } = new URL((await app()).url)
  await eventually(async () => (await visit(`http://shop.example.com:${port}`)).text === 'v3 hello')
  await eventually(async () => {
    const { status, location } = await visit(`http://www.shop.example.com:${port}`, '/cart')
    return status === 308 && /\/\/shop\.example\.com(:\d+)?\/cart$/.test(location ?? '')
  })
})

test('files are sent and built, and the image is deployed', async () => {
  await makeCaddy()
  expect(refusalsIn(await paste(10))).toEqual([])
  const said = await paste(12)
  expect(refusalsIn(said)).toEqual([])
  expect(said).toMatch(/"status":"succeeded"[^]*"digest":"sha256:/)
  const built = await eventually(async () => {
    const { items } = await tenant.owner.get<{ items: { url: string; status: string }[] }>(
      `/api/v1/deploy-servers/${await valueOf('DEPLOY')}/applications?name=built`,
    )
    return items.find(({ status }) => status === 'running')
  })
  expect((await visit(built.url)).text).toBe('hello')
})

test('the credentials are shown, and rotated', async () => {
  const [shown = '', rotated = ''] = (await paste(14)).split(/(?<=\})(?=\{)/)
  const tokens = [shown, rotated].map((one) => (JSON.parse(one) as { api_token: string }).api_token)
  expect(new Set(tokens).size).toBe(2)
})
