import { execFileSync } from 'node:child_process'
import { text } from 'node:stream/consumers'
import { beforeAll, describe, expect, test } from '@jest/globals'
import type { BuildOrder, Nixpacks, NixpacksOrder } from '../../drivers/image-builds.ts'
import { makeImageBuilds } from '../../drivers/swarm/image-builds.ts'
import { makeNixpacks } from '../../drivers/swarm/nixpacks.ts'
import { newId } from '../../lib/ids.ts'
import { makeNixBase, makeNixpacksImage } from '../support/base-images.ts'
import type { DeployServerBody } from '../support/client.ts'
import { buildsOf } from '../support/clients/builds.ts'
import { docker } from '../support/containers.ts'
import { innerEngine, pipeInto, runOnMachine } from '../support/machines-inside.ts'
import { sharedServer } from '../support/shared-server.ts'
import type { TestTenant } from '../support/tenants.ts'

// Nixpacks in the machine of a deploy server. Its program is no part of the project: `cargo install nixpacks` puts it on
// the PATH, for those tests that run it.

const program = ((): string => {
  try {
    return execFileSync('sh', ['-c', 'command -v nixpacks'], { encoding: 'utf8' }).trim()
  } catch {
    return ''
  }
})()

let tenant: TestTenant
let server: DeployServerBody
let machine: string
let nixpacks: Nixpacks
beforeAll(async () => {
  ;({ tenant, server } = await sharedServer())
  machine = server.workers[0]?.machine_id ?? ''
  nixpacks = makeNixpacks(pipeInto(tenant.owner))
})

const onWorker = (command: string): Promise<string> => runOnMachine(tenant.owner, machine, command)

async function orderOf(name: string, files: Record<string, string>): Promise<NixpacksOrder> {
  const artifact = await buildsOf(tenant.owner, server.id).push(name, files)
  const folder = `/opt/apps/.versions/${name}/${artifact}`
  return { id: newId(), folder, image: 'keelson/test-nixpacks:1', base_image: 'keelson/test-nix:1' }
}

const copyImage = async (name: string): Promise<void> => {
  await text(await (await innerEngine(tenant.owner, machine)).loadImage(await docker.getImage(name).get()))
}

test('Nixpacks that cannot be had fails a build with the reason', async () => {
  const order = await orderOf('unplanned', { 'package.json': '{}' })
  await expect(nixpacks.plan(machine, order)).rejects.toMatchObject({
    code: 'builder_unavailable',
    message: expect.stringContaining(
      'could not be started from the operator’s image keelson/test-nixpacks:1',
    ),
  })
  await copyImage('busybox:latest')
  await expect(nixpacks.plan(machine, { ...order, image: 'busybox:latest' })).rejects.toMatchObject({
    code: 'builder_unavailable',
    message: expect.stringContaining('nixpacks'),
  })
  await nixpacks.remove(machine, order.id)
  const left = `docker ps -aq --filter volume=/opt/apps/.nixpacks/${order.id}`
  expect(await onWorker(`ls /opt/apps/.nixpacks; ${left}`)).toBe('')
})

;(program ? describe : describe.skip)('Nixpacks', () => {
  beforeAll(async () => {
    await makeNixpacksImage(program)
    await copyImage('keelson/test-nixpacks:1')
  })

  test('makes a Dockerfile by which the files are built, and leaves them as they are', async () => {
    await makeNixBase()
    await copyImage('keelson/test-nix:1')
    const order = await orderOf('planned', {
      'package.json': '{"name":"web","version":"1.0.0","scripts":{"start":"node server.js"}}',
      'server.js': 'console.log(`built by ${process.env.NIXPACKS_METADATA}`)',
      '.nixpacks/Dockerfile': 'FROM evil',
    })
    const { folder, text: dockerfile, build_args, said } = await nixpacks.plan(machine, order)
    expect(said.join('\n')).toContain('npm run start')
    expect(dockerfile).toContain('FROM keelson/test-nix:1')
    expect(build_args).toMatchObject({ NIXPACKS_METADATA: 'node', NODE_ENV: 'production' })
    expect(await onWorker(`cat ${order.folder}/.nixpacks/Dockerfile`)).toBe('FROM evil')

    const build: BuildOrder = {
      id: order.id,
      folder,
      dockerfile: { text: dockerfile, ignore: '' },
      reference: `planned:${order.id}`,
      target: null,
      build_args,
      secrets: {},
      timeout_sec: 600,
    }
    const log: string[] = []
    await makeImageBuilds(pipeInto(tenant.owner)).run(
      machine,
      build,
      async () => {},
      (line) => log.push(line),
    )
    expect(log.join('\n')).toContain('nothing is installed')
    expect(await onWorker(`docker run --rm planned:${order.id}`)).toContain('built by node')
    await nixpacks.remove(machine, order.id)
    expect(await onWorker('ls /opt/apps/.nixpacks')).toBe('')
  })

  test('says so if it recognises nothing', async () => {
    const order = await orderOf('unrecognised', { 'notes.txt': 'x' })
    await expect(nixpacks.plan(machine, order)).rejects.toMatchObject({ code: 'nothing_recognised' })
  })
})
