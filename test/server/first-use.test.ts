import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { tmpdir } from 'node:os'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { createTenant } from '../../models/identity/tenants.ts'
import { blocksOf } from '../../script/lib/pages.ts'
import { openShell } from '../support/paste.ts'
import { facts } from '../support/stack.ts'

// The first use of README.md, pasted block by block. Only the API's address is the stack's.

let shell: ReturnType<typeof openShell>
let clone: string
let blocks: string[]
beforeAll(async () => {
  clone = await mkdtemp(join(tmpdir(), 'clone-'))
  const owner = { email: `${newId()}@example.com`, password: newId() }
  await createTenant({ name: 'first use' }, { ...owner, name: 'Owner' })
  await mkdir(join(clone, '.state'))
  await writeFile(join(clone, '.state/owner.json'), JSON.stringify(owner))
  const readme = await readFile(new URL('../../README.md', import.meta.url), 'utf8')
  blocks = blocksOf(readme).map((block) => block.replaceAll('http://127.0.0.1:7080', facts().api_url))
  shell = openShell({})
  await shell.paste(`cd '${clone}'`)
})
afterAll(async () => {
  await shell.close()
  await rm(clone, { recursive: true })
})

test('README has two blocks to paste', () => {
  expect(blocks).toHaveLength(2)
})

test('a login, a container and its list', async () => {
  const said = await shell.paste(blocks[0] ?? '')
  expect(said).toMatch(/^HTTP\/1\.1 202 /m)
  expect(said).toMatch(/^Operation-Location: \/api\/v1\/operations\//m)
  expect(JSON.parse(said.slice(said.lastIndexOf('{"items"')))).toMatchObject({
    total: 1,
    items: [{ name: 'hello', image: 'keelson/hello:1' }],
  })
})

test('an API client with one scope, and its token', async () => {
  const said = await shell.paste(blocks[1] ?? '')
  expect(said).toMatch(/"client_secret":"kcs_/)
  expect(said).toMatch(/"access_token":"[^"]+"/)
  expect(said).toContain('"scope":"containers:read"')
})
