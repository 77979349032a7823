import { createServer } from 'node:net'
import { afterEach, describe, expect, test } from '@jest/globals'
import type { PublishedPort } from '../../../drivers/containers.ts'
import { makeDockerEngine } from '../../../drivers/docker/engine.ts'
import { makeHostPorts } from '../../../drivers/system/host-ports.ts'
import { newId } from '../../../lib/ids.ts'
import {
  containerSpec,
  docker,
  engine,
  makeEngine,
  onEngine,
  removeTestContainers,
  shell,
  testHost,
  testPorts,
} from '../../support/containers.ts'
import { eventually } from '../../support/eventually.ts'

afterEach(removeTestContainers)

const anyPort: PublishedPort = { container_port: 80, protocol: 'tcp', host_port: null }
const operation = newId()
const run = (spec = containerSpec(), vars = {}, by = operation) => engine.run(spec, vars, by)

describe('run', () => {
  test('creates one container, however often it is retried', async () => {
    const spec = containerSpec()
    const first = await run(spec)
    expect(first).toMatchObject({ id: spec.id, state: 'running', exit_code: null, restart_count: 0 })
    expect(await run(spec)).toEqual(first)
    expect(await onEngine(spec.id)).toHaveLength(1)
  })

  test('creates one container for parallel requests', async () => {
    const spec = containerSpec({ ports: [anyPort] })
    const found = await Promise.all([1, 2, 3, 4, 5].map(() => run(spec)))
    expect(new Set(found.map(({ started_at }) => started_at)).size).toBe(1)
    expect(await onEngine(spec.id)).toHaveLength(1)
  })

  test('starts a container that was created and never started', async () => {
    const spec = containerSpec()
    await run(spec)
    await engine.stop(spec.id, 0)
    const [made] = await onEngine(spec.id)
    const { Config, HostConfig } = await docker.getContainer(made?.Id ?? '').inspect()
    await engine.remove(spec.id)
    await docker.createContainer({ ...Config, HostConfig, name: `keelson-${spec.id}` })
    expect(await engine.find(spec.id)).toMatchObject({ state: 'created', started_at: null })

    expect(await run(spec)).toMatchObject({ state: 'running' })
    expect(await onEngine(spec.id)).toHaveLength(1)
  })

  test('gives the container its config vars, its size and its limits', async () => {
    const spec = containerSpec({ cpu_cores: 0.5, memory_mib: 48, log_cap_mib: 20 })
    await run(spec, { GREETING: 'hello' })
    const { Config, HostConfig } = await docker.getContainer(`keelson-${spec.id}`).inspect()
    expect(Config.Env).toContain('GREETING=hello')
    expect(HostConfig).toMatchObject({
      NanoCpus: 5e8,
      Memory: 48 * 2 ** 20,
      MemorySwap: 48 * 2 ** 20,
      PidsLimit: 1024,
      SecurityOpt: ['no-new-privileges'],
      RestartPolicy: { Name: 'unless-stopped' },
      LogConfig: { Type: 'json-file', Config: { 'max-size': String(4 * 2 ** 20), 'max-file': '5' } },
    })
  })

  test('refuses an image that does not exist, and leaves nothing', async () => {
    const spec = containerSpec({ image: 'localhost:1/no-such-image' })
    await expect(run(spec)).rejects.toMatchObject({ code: 'image_not_found', permanent: true })
    await expect(engine.pull(spec.image)).rejects.toMatchObject({ code: 'image_not_found' })
    expect(await onEngine(spec.id)).toEqual([])
  })

  test.each([[['no-such-command']], [['/etc']]])(
    'reports that %j cannot be started, and leaves nothing',
    async (command) => {
      const spec = containerSpec({ command })
      await expect(run(spec)).rejects.toMatchObject({
        code: 'command_not_started',
        message: expect.stringContaining(command[0] ?? ''),
      })
      expect(await onEngine(spec.id)).toEqual([])
    },
  )

  test('reports why a command ended at once, and leaves nothing', async () => {
    const spec = shell('echo no configuration; exit 3')
    await expect(run(spec)).rejects.toMatchObject({
      code: 'exited_at_once',
      exitCode: 3,
      message: 'The command ended at once with exit code 3: no configuration',
    })
    expect(await onEngine(spec.id)).toEqual([])
  })

  test('reports commands that end at once as such on a busy engine, where they end before it has applied all settings', async () => {
    const busy = Array.from({ length: 24 }, (_, i) => run(shell(`sleep 0.00${i % 9}; exit 4`)))
    for (const end of await Promise.allSettled(busy))
      expect(end).toMatchObject({ status: 'rejected', reason: { code: 'exited_at_once', exitCode: 4 } })
  })

  test('reports a service that ends at once as failed, even with exit code 0', async () => {
    await expect(run(containerSpec({ command: ['true'] }))).rejects.toMatchObject({ code: 'exited_at_once' })
  })

  test.each(['never', 'on_failure'] as const)(
    'reports a job (%s) that ends at once as succeeded, and does not run it twice',
    async (restart_policy) => {
      const spec = containerSpec({ command: ['true'], restart_policy })
      const done = await run(spec)
      expect(done).toMatchObject({ state: 'exited', exit_code: 0 })
      expect(await run(spec)).toEqual(done)
    },
  )

  test('runs a job again for another operation', async () => {
    const spec = containerSpec({ command: ['true'], restart_policy: 'never' })
    const first = await run(spec)
    const second = await run(spec, {}, newId())
    expect(Date.parse(second.started_at ?? '')).toBeGreaterThan(Date.parse(first.started_at ?? ''))
  })
})

describe('host ports', () => {
  test('that are taken are refused, and nothing is left', async () => {
    const port = 22_990
    const held = createServer().listen(port, '0.0.0.0')
    try {
      const spec = containerSpec({ ports: [{ ...anyPort, host_port: port }] })
      await expect(makeEngine([port, port]).run(spec, {}, operation)).rejects.toMatchObject({
        code: 'port_in_use',
        port,
        permanent: true,
      })
      expect(await onEngine(spec.id)).toEqual([])
    } finally {
      held.close()
    }
  })

  test('are chosen without conflict with other containers and programs', async () => {
    const held = createServer().listen(22_980, '0.0.0.0')
    try {
      const narrow = makeEngine([22_980, 22_982])
      const specs = [containerSpec({ ports: [anyPort] }), containerSpec({ ports: [anyPort] })]
      const found = await Promise.all(specs.map((spec) => narrow.run(spec, {}, operation)))
      const taken = found.flatMap(({ ports }) => ports.map(({ host_port }) => host_port))
      expect(new Set(taken)).toEqual(new Set([22_981, 22_982]))

      const third = containerSpec({ ports: [anyPort] })
      await expect(narrow.run(third, {}, operation)).rejects.toMatchObject({ code: 'port_in_use' })
      expect(await onEngine(third.id)).toEqual([])
    } finally {
      held.close()
    }
  })

  test('are kept over stop and start, and no other container gets them meanwhile', async () => {
    const narrow = makeEngine([22_970, 22_970])
    const spec = containerSpec({ ports: [anyPort, { ...anyPort, protocol: 'udp' }] })
    const before = await narrow.run(spec, {}, operation)
    await narrow.stop(spec.id, 0)
    await expect(narrow.run(containerSpec({ ports: [anyPort] }), {}, operation)).rejects.toMatchObject({
      code: 'port_in_use',
    })
    expect((await narrow.run(spec, {}, newId())).ports).toEqual(before.ports)
  })
})

describe('stop, start and resize', () => {
  test('a stopped container keeps its files, and starts with the requested size', async () => {
    // To one stream: the engine does not keep the order of two.
    const spec = shell('exec 2>&1; cat /kept; echo kept > /kept; echo up; sleep 600')
    await run(spec)
    await eventually(async () => (await lines(spec.id)).includes('up'))
    await engine.stop(spec.id, 0)
    expect(await engine.find(spec.id)).toMatchObject({ state: 'exited' })
    await engine.stop(spec.id, 0)

    await run({ ...spec, memory_mib: 64 }, {}, newId())
    await eventually(async () => (await lines(spec.id)).length === 4)
    expect(await lines(spec.id)).toEqual([expect.stringContaining("can't open"), 'up', 'kept', 'up'])
    const { HostConfig } = await docker.getContainer(`keelson-${spec.id}`).inspect()
    expect(HostConfig.Memory).toBe(64 * 2 ** 20)
  })

  test('a stopped container with a changed spec is recreated', async () => {
    const spec = containerSpec()
    await run(spec)
    await engine.stop(spec.id, 0)
    await run({ ...spec, command: ['sleep', '700'] }, {}, newId())
    const { Config } = await docker.getContainer(`keelson-${spec.id}`).inspect()
    expect(Config.Cmd).toEqual(['sleep', '700'])
    expect(await onEngine(spec.id)).toHaveLength(1)
  })

  test('a failed start leaves the container stopped', async () => {
    const spec = shell('test ! -e /ran || exit 9; touch /ran; echo up; sleep 600')
    await run(spec)
    await eventually(async () => (await lines(spec.id)).includes('up'))
    await engine.stop(spec.id, 0)
    await expect(run(spec, {}, newId())).rejects.toMatchObject({ code: 'exited_at_once', exitCode: 9 })
    expect(await engine.find(spec.id)).toMatchObject({ state: 'exited', exit_code: 9 })
  })

  test('stop gives the command its grace period to end', async () => {
    const polite = shell('trap "echo bye; exit 0" TERM; echo up; while true; do sleep 0.05; done')
    await run(polite)
    await eventually(async () => (await lines(polite.id)).includes('up'))
    await engine.stop(polite.id, 10)
    expect(await lines(polite.id)).toEqual(['up', 'bye'])

    const deaf = shell('trap "" TERM; echo up; while true; do sleep 1; done')
    await run(deaf)
    await eventually(async () => (await lines(deaf.id)).includes('up'))
    await engine.stop(deaf.id, 1)
    expect(await engine.find(deaf.id)).toMatchObject({ state: 'exited', exit_code: 137 })
  })

  test('stop has the engine never start one that has ended by itself', async () => {
    const spec = shell('sleep 1', { restart_policy: 'on_failure' })
    await run(spec)
    await eventually(async () => (await engine.find(spec.id))?.state === 'exited')
    const policy = async () =>
      (await docker.getContainer(`keelson-${spec.id}`).inspect()).HostConfig.RestartPolicy?.Name
    expect(await policy()).toBe('on-failure')
    await engine.stop(spec.id, 0)
    expect(await policy()).toBe('no')
    await run(spec, {}, newId())
    expect(await policy()).toBe('on-failure')
  })

  test('resize applies to a running container', async () => {
    const spec = containerSpec()
    const { started_at } = await run(spec)
    await engine.resize(spec.id, { cpu_cores: 1, memory_mib: 96, restart_policy: 'on_failure' })
    const { HostConfig } = await docker.getContainer(`keelson-${spec.id}`).inspect()
    expect(HostConfig).toMatchObject({
      NanoCpus: 1e9,
      Memory: 96 * 2 ** 20,
      RestartPolicy: { Name: 'on-failure' },
    })
    expect(await engine.find(spec.id)).toMatchObject({ state: 'running', started_at })
    const absent = { cpu_cores: 1, memory_mib: 96, restart_policy: 'never' } as const
    await expect(engine.resize(newId(), absent)).rejects.toMatchObject({ code: 'instance_not_found' })
  })

  test('stop and remove succeed for a missing container', async () => {
    await engine.stop(newId(), 0)
    await engine.remove(newId())
  })
})

test('a container that is not the platform’s is never touched, whatever its name', async () => {
  const spec = containerSpec()
  const foreign = await docker.createContainer({
    name: `keelson-${spec.id}`,
    Image: 'busybox',
    Cmd: ['sleep', '600'],
  })
  try {
    await foreign.start()
    await engine.stop(spec.id, 0)
    await engine.remove(spec.id)
    await expect(run(spec)).rejects.toMatchObject({ code: 'engine_refused' })
    expect(await engine.find(spec.id)).toBeNull()
    expect((await engine.list()).map(({ id }) => id)).not.toContain(spec.id)
    expect((await foreign.inspect()).State.Running).toBe(true)
  } finally {
    await foreign.remove({ force: true })
  }
})

test('two hosts on one engine see and touch only their own containers', async () => {
  const spec = containerSpec()
  const mine = await engine.run(spec, {}, newId())
  const other = makeEngine(testPorts, newId())
  expect(await other.find(spec.id)).toBeNull()
  expect((await other.list()).map(({ id }) => id)).not.toContain(spec.id)
  await other.stop(spec.id, 0)
  await other.remove(spec.id)
  expect(await engine.find(spec.id)).toMatchObject({ state: 'running', engine_id: mine.engine_id })
})

test('the removal of a former container leaves its successor', async () => {
  const spec = containerSpec()
  const first = await engine.run(spec, {}, newId())
  await engine.remove(spec.id)
  const second = await engine.run(spec, {}, newId())
  await engine.remove(spec.id, { engineId: first.engine_id })
  expect(await engine.find(spec.id)).toMatchObject({ engine_id: second.engine_id })
  await engine.remove(spec.id, { engineId: second.engine_id })
  expect(await engine.find(spec.id)).toBeNull()
})

test('an unreachable engine is a retryable error', async () => {
  const away = makeDockerEngine({
    hostId: testHost,
    dockerHost: 'unix:///nowhere.sock',
    ports: makeHostPorts({ address: '127.0.0.1', range: [1, 2] }),
  })
  await expect(away.list()).rejects.toMatchObject({ code: 'engine_unavailable', permanent: false })
})

async function lines(id: string): Promise<string[]> {
  const all: string[] = []
  for await (const { line } of engine.logs(id, {})) all.push(line)
  return all
}
