import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { asRoot } from '../support/as-root.ts'
import { type Json, shell as shellContainer } from '../support/client.ts'
import { testDrawn } from '../support/drawn.ts'
import { eventually } from '../support/eventually.ts'
import { blocksOf, pageOf } from '../../script/lib/pages.ts'
import { openReaderShell, openShell, refusalsIn } from '../support/paste.ts'
import { facts } from '../support/stack.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// The examples of the pages about instances, disks and networks, pasted into a shell as a reader would.

let tenant: TestTenant
let home: string
let shell: Awaited<ReturnType<typeof openReaderShell>>
beforeAll(async () => {
  tenant = await makeTenant()
  home = await mkdtemp(join(tmpdir(), 'reader-'))
  const { id } = await tenant.containers.make(shellContainer('echo hello; exec sleep 3600'))
  shell = await openReaderShell(tenant.owner.token, { CONTAINER: id, HOME: home })
  await shell.paste(`cd '${home}'`)
})
afterAll(async () => {
  await shell?.close()
  await rm(home, { recursive: true })
})

const named = async (plural: string, name: string) =>
  (await tenant.owner.get<{ items: Json[] }>(`/api/v1/${plural}?name=${name}`)).items[0]

test('docs/console.md: one command, its output and its exit code', async () => {
  const [block = '', ...rest] = blocksOf(await pageOf('console'))
  expect(rest).toEqual([])
  expect(JSON.parse(await shell.paste(block))).toMatchObject({
    output: expect.stringMatching(/^\d+\.\d+/),
    exit_code: 3,
  })
})

test('docs/logs.md: the archive', async () => {
  const [block = '', ...rest] = blocksOf(await pageOf('logs'))
  expect(rest).toEqual([])
  await eventually(async () => {
    await shell.paste(block)
    return (await readFile(join(home, 'output.txt'), 'utf8')).includes('hello')
  })
})

asRoot('with networks', () => {
  test('docs/vpcs.md: a VPC with two containers, a second NIC, and DHCP', async () => {
    const [network = '', nic = '', dhcp = '', ...rest] = blocksOf(await pageOf('vpcs'))
    expect(rest).toEqual([])
    const made = await shell.paste(network)
    expect(made).toMatch(/succeeded\s+succeeded/)
    expect(made).toMatch(/"ip_address":"10\.0\.0\.\d+"/)
    expect((await shell.paste(nic)).split(/\s+/)).toEqual(['succeeded', 'succeeded'])
    expect(await shell.paste(dhcp)).toBe('succeeded')
  })
})

asRoot('with disks', () => {
  test('docs/disks.md: a disk that is attached, grown, snapshot and restored', async () => {
    const [block = '', ...rest] = blocksOf(await pageOf('disks'))
    expect(rest).toEqual([])
    const said = await shell.paste(block)
    expect(refusalsIn(said)).toEqual([])
    expect(JSON.parse(said.split('\n').at(-1) ?? '')).toMatchObject({ new_disk_id: expect.any(String) })
    expect(await named('disks', 'data')).toMatchObject({ size_gib: 2, attached_to: { mount_path: '/data' } })
  })
})

asRoot('with machines', () => {
  test('docs/microvms.md: a microVM that is suspended, forked and resumed', async () => {
    const [block = '', ...rest] = blocksOf(await pageOf('microvms'))
    expect(rest).toEqual([])
    expect(refusalsIn(await shell.paste(block))).toEqual([])
    for (const name of ['sandbox', 'second'])
      expect(await named('microvms', name)).toMatchObject({ status: 'running' })
  })

  testDrawn('docs/vms.md: a VM with an SSH key and user data', async () => {
    const [block = '', ...rest] = blocksOf(await pageOf('vms'))
    expect(rest).toEqual([])
    const key = `ssh-ed25519 ${'A'.repeat(68)} reader@example.com`
    await mkdir(join(home, '.ssh'))
    await writeFile(join(home, '.ssh/id_ed25519.pub'), `${key}\n`)
    // It has shorthands of its own.
    const own = openShell({ API: facts().api_url, TOKEN: tenant.owner.token, HOME: home })
    expect(refusalsIn(await own.paste(block))).toEqual([])
    await own.close()
    expect(await named('vms', 'server')).toMatchObject({ status: 'running', ssh_keys: [key] })
  })
})
