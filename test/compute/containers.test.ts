import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import { beforeAll, describe, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { type ContainerBody, shell, sleeper } from '../support/client.ts'
import { docker, engine } from '../support/engine.ts'
import { eventually } from '../support/eventually.ts'
import { holdsNothing, makeTenant, type TestTenant } from '../support/tenants.ts'

// What each operation on a container does, and what it refuses.

let tenant: TestTenant
beforeAll(async () => {
  tenant = await makeTenant()
})

const path = '/api/v1/containers'
const conflict = (state: string) => ({ status: 409, body: { code: 'state_conflict', state } })
const answerOf = async (port: ContainerBody['ports'][number] | undefined): Promise<string> =>
  (await fetch(`http://${port?.host_address}:${port?.host_port}/`)).text()

describe('create', () => {
  test('answers at once, and one container with the requested spec runs in the end', async () => {
    const { id, body, operation } = await tenant.containers.create({
      cpu_cores: 0.5,
      memory_mib: 48,
      config_vars: { GREETING: 'hello' },
      tags: { team: 'blue' },
    })
    expect(body).toMatchObject({ status: 'creating', operation_id: operation.id, desired_state: 'running' })
    expect(await operation.end()).toMatchObject({
      state: 'succeeded',
      verb: 'create',
      resource_kind: 'container',
      resource_id: id,
      step: null,
      error: null,
    })
    expect(await tenant.containers.get(id)).toMatchObject({
      status: 'running',
      status_reason: null,
      operation_id: null,
      tags: { team: 'blue' },
      restart_policy: 'always',
      disk_gib: 10,
      image_digest: expect.stringMatching(/^sha256:/),
      started_at: expect.any(String),
      host_id: expect.any(String),
    })
    const { Config, HostConfig, State } = await engine.only(id)
    expect(State.Running).toBe(true)
    expect(Config.Env).toContain('GREETING=hello')
    expect(HostConfig).toMatchObject({ NanoCpus: 5e8, Memory: 48 * 2 ** 20 })
    expect(await tenant.holds()).toMatchObject({ cpu_milli: 500, memory_mib: 48, reservations: 1 })
  })

  test('publishes ports on the host, where the container answers', async () => {
    const { ports } = await tenant.containers.make({
      image: 'keelson/hello:1',
      command: [],
      ports: [{ container_port: 8080 }],
    })
    expect(await eventually(() => answerOf(ports[0]))).toMatch(/^Hello from /)
  })

  test('with start: false leaves the container stopped until it is started', async () => {
    const { id, status } = await tenant.containers.make({ start: false })
    expect(status).toBe('stopped')
    expect(await engine.withLabel('keelson.resource', id)).toEqual([])
    await (await tenant.containers.start(id)).operation.success()
    expect((await engine.only(id)).State.Running).toBe(true)
  })

  test.each(['never', 'on_failure'])(
    'ends a job (%s) that finishes at once as succeeded',
    async (restart_policy) => {
      const job = await tenant.containers.make({ command: ['true'], restart_policy })
      expect(job).toMatchObject({
        status: 'stopped',
        desired_state: 'stopped',
        exit_code: 0,
        status_reason: null,
      })
    },
  )

  test('refuses a taken name, which is free again when its container is deleted', async () => {
    const { id, name } = await tenant.containers.make()
    const again = sleeper({ name })
    expect(await tenant.owner.ask('POST', path, again)).toMatchObject({
      status: 409,
      body: { code: 'name_taken' },
    })
    const other = await makeTenant()
    await (await other.containers.create(again)).operation.success()
    await (await tenant.containers.delete(id)).operation.success()
    await (await tenant.containers.create(again)).operation.success()
  })

  test('refuses more than the tenant’s quota, and reserves nothing for it', async () => {
    const small = await makeTenant({ max_cpu_cores: 1, max_ram_gib: 1 })
    await small.containers.make({ cpu_cores: 0.6, memory_mib: 600 })
    const held = await small.holds()
    for (const [limit, size] of Object.entries({
      max_cpu_cores: { cpu_cores: 0.5 },
      max_ram_gib: { memory_mib: 500 },
    }))
      expect(await small.owner.ask('POST', path, sleeper(size))).toMatchObject({
        status: 409,
        body: { code: 'quota_exceeded', limit, allowed: 1 },
      })
    expect(await small.holds()).toEqual(held)
    expect(await small.owner.get(path)).toMatchObject({ total: 1 })
  })

  test('takes no image from a private address, whatever is there, nor one by a local id', async () => {
    const silent = createServer((socket) => void socket.unref()).listen(0, '127.0.0.1')
    await once(silent, 'listening')
    const { port } = silent.address() as AddressInfo
    const { id: its } = await tenant.containers.make({ start: false })
    const answers = []
    for (const image of [`127.0.0.1:${port}/app`, '127.0.0.1:2/app', '2130706433:2/app', 'localhost:2/app'])
      for (const [method, url, body] of [
        ['POST', path, sleeper({ image })],
        ['PUT', `${path}/${its}`, { image }],
      ] as const) {
        const { status, body: said } = await tenant.owner.ask(method, url, body)
        answers.push(JSON.stringify([status, said['code'], said['detail']]))
      }
    expect(new Set(answers)).toEqual(
      new Set([
        JSON.stringify([422, 'image_not_allowed', 'The platform takes no images from this registry']),
      ]),
    )
    const [found] = await docker.listImages({ filters: { reference: ['busybox'] } })
    const local = found?.Id ?? ''
    for (const id of [local, local.slice(7, 19), local.slice(7)])
      expect(await tenant.owner.ask('POST', path, sleeper({ image: id }))).toMatchObject({
        status: 422,
        body: { code: 'local_image_id' },
      })
    silent.close()
  })

  test('lets only operators choose a host', async () => {
    const answer = await tenant.owner.ask('POST', path, sleeper({ host_id: newId() }))
    expect(answer).toMatchObject({
      status: 403,
      body: { code: 'permission_denied', permission: 'platform:hosts' },
    })
  })
})

describe('stop and start', () => {
  test('keep the container, its files and its ports', async () => {
    const { id, ports } = await tenant.containers.make({
      ...shell('echo started >> /starts; cp /starts /tmp/index.html; exec httpd -f -p 80 -h /tmp'),
      ports: [{ container_port: 80 }],
    })
    expect(await eventually(() => answerOf(ports[0]))).toBe('started\n')

    const stopping = await tenant.containers.stop(id)
    expect(stopping.body).toMatchObject({ status: 'stopping', desired_state: 'stopped' })
    await stopping.operation.success()
    expect(await tenant.containers.get(id)).toMatchObject({
      status: 'stopped',
      exit_code: expect.any(Number),
    })
    expect((await engine.only(id)).State.Running).toBe(false)

    await (await tenant.containers.start(id)).operation.success()
    expect(await tenant.containers.get(id)).toMatchObject({
      status: 'running',
      desired_state: 'running',
      ports,
    })
    expect(await eventually(() => answerOf(ports[0]))).toBe('started\nstarted\n')
  })

  test('give the command its grace period to end', async () => {
    const { id } = await tenant.containers.make(shell('trap "exit 7" TERM; while :; do sleep 0.1; done'))
    await (await tenant.containers.stop(id, { grace_sec: 30 })).operation.success()
    expect(await tenant.containers.get(id)).toMatchObject({ exit_code: 7 })
  })

  test('are refused in a state that does not allow them; the refusal names the state', async () => {
    const { id } = await tenant.containers.make()
    expect(await tenant.owner.ask('POST', `${path}/${id}/start`)).toMatchObject(conflict('running'))
    await (await tenant.containers.stop(id)).operation.success()
    expect(await tenant.owner.ask('POST', `${path}/${id}/stop`)).toMatchObject(conflict('stopped'))
  })
})

describe('update', () => {
  test('changes the size of a running container', async () => {
    const { id, started_at } = await tenant.containers.make()
    const before = await tenant.holds()
    const { operation } = await tenant.containers.update(id, {
      cpu_cores: 0.3,
      memory_mib: 32,
      disk_gib: 20,
      tags: { a: 'b' },
    })
    await operation.success()
    expect(await tenant.containers.get(id)).toMatchObject({
      status: 'running',
      cpu_cores: 0.3,
      memory_mib: 32,
      disk_gib: 20,
      tags: { a: 'b' },
      pending_changes: [],
      started_at,
    })
    expect((await engine.only(id)).HostConfig).toMatchObject({ NanoCpus: 3e8, Memory: 32 * 2 ** 20 })
    expect(await tenant.holds()).toEqual({
      ...before,
      cpu_milli: before.cpu_milli + 200,
      memory_mib: before.memory_mib + 16,
    })
  })

  test('names the changes that wait for the next start, which applies them', async () => {
    const { id, ports } = await tenant.containers.make({ ports: [{ container_port: 80 }] })
    const command = ['sleep', '7200']
    await (await tenant.containers.update(id, { command })).operation.success()
    expect(await tenant.containers.get(id)).toMatchObject({ command, pending_changes: ['command'], ports })
    expect((await engine.only(id)).Config.Cmd).not.toEqual(command)

    await (await tenant.containers.stop(id)).operation.success()
    await (await tenant.containers.start(id)).operation.success()
    expect(await tenant.containers.get(id)).toMatchObject({ command, pending_changes: [] })
    expect((await engine.only(id)).Config.Cmd).toEqual(command)
  })

  test('refuses a size beyond the limit, and changes nothing', async () => {
    const small = await makeTenant({ max_cpu_cores: 1 })
    const { id } = await small.containers.make({ cpu_cores: 0.5 })
    const refused = await small.owner.ask('PUT', `${path}/${id}`, { cpu_cores: 1.5 })
    expect(refused).toMatchObject({ status: 409, body: { code: 'quota_exceeded' } })
    expect(await small.containers.get(id)).toMatchObject({
      status: 'running',
      cpu_cores: 0.5,
      operation_id: null,
    })
    expect(await small.holds()).toMatchObject({ cpu_milli: 500 })
  })
})

describe('delete', () => {
  test('leaves nothing on the engine and frees the quota', async () => {
    const other = await makeTenant()
    const { id } = await other.containers.make()
    const { operation, body } = await other.containers.delete(id)
    expect(body.status).toBe('deleting')
    await operation.success()
    expect(await engine.withLabel('keelson.resource', id)).toEqual([])
    expect(await other.owner.ask('GET', `${path}/${id}`)).toMatchObject({ status: 404 })
    expect(await other.holds()).toEqual(holdsNothing)
  })
})
