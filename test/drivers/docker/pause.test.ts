import { afterEach, expect, test } from '@jest/globals'
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
  testTenant,
} from '../../support/containers.ts'
import { execInside } from '../../support/inside.ts'
import { eventually } from '../../support/eventually.ts'

// A container in VPCs: a second container, the pause container, keeps its namespace and is visible to nothing else.

afterEach(removeTestContainers)

const network = { dns_server: '10.0.0.1', search_domain: 'internal' }
const pauseOf = (id: string) => docker.getContainer(`keelson-${id}-pause`)
const refuse = () => Promise.reject(new Error('no NIC'))
const noticed: number[] = []
const run = (spec = containerSpec({ network }), by = newId(), on = engine) =>
  on.run(spec, {}, by, async (pid) => {
    noticed.push(pid)
  })
const inside = (id: string, ...command: string[]) => execInside(docker.getContainer(`keelson-${id}`), command)

test('a container has its namespace, resolver, host name and ports before it starts, and over restarts', async () => {
  const ports = [{ container_port: 80, protocol: 'tcp' as const, host_port: null }]
  const spec = containerSpec({ network, ports, name: 'web' })
  noticed.length = 0
  const found = await run(spec)
  expect(found).toMatchObject({ state: 'running', ports: [{ container_port: 80 }] })
  const { State, Config, HostConfig } = await pauseOf(spec.id).inspect()
  expect(noticed).toEqual([State.Pid])
  expect(Config.Hostname).toBe('web')
  expect(HostConfig).toMatchObject({ Dns: ['10.0.0.1'], DnsSearch: ['internal'] })
  expect(await engine.list()).toMatchObject([{ id: spec.id }])
  expect(await run(spec)).toEqual(found)
  await docker.getContainer(found.engine_id).restart({ t: 0 })
  expect(await engine.find(spec.id)).toMatchObject({ state: 'running', ports: found.ports })
  expect((await pauseOf(spec.id).inspect()).State.Pid).toBe(State.Pid)
})

test('a container without ports has only the links that are put into its namespace', async () => {
  const spec = containerSpec({ network })
  await run(spec)
  const { NetworkSettings } = await pauseOf(spec.id).inspect()
  expect(Object.keys(NetworkSettings.Networks)).toEqual(['none'])
})

test('a container keeps its files over stop and start; its namespace ends while it is stopped', async () => {
  const spec = shell('echo started >>/starts; sleep 600', { network })
  const starts = async () => (await inside(spec.id, 'cat', '/starts')).output.match(/started/g)?.length
  await run(spec)
  await eventually(async () => (await starts()) === 1)
  await engine.stop(spec.id, 0)
  expect((await pauseOf(spec.id).inspect()).State.Running).toBe(false)
  const { engine_id } = await run(spec)
  await eventually(async () => (await starts()) === 2)
  // Its files are worth more than a new search domain; another resolver needs a new container.
  await engine.stop(spec.id, 0)
  const again = await run({ ...spec, network: { ...network, search_domain: 'example' } })
  expect(again.engine_id).toBe(engine_id)
  await engine.stop(spec.id, 0)
  expect((await run({ ...spec, network: { ...network, dns_server: '10.0.0.9' } })).engine_id).not.toBe(
    engine_id,
  )
  expect((await pauseOf(spec.id).inspect()).HostConfig.Dns).toEqual(['10.0.0.9'])
})

test('a container whose namespace was killed counts as not running, and restarts with a new one', async () => {
  const spec = containerSpec({ network })
  const before = await run(spec)
  await pauseOf(spec.id).kill()
  expect(await engine.find(spec.id)).toMatchObject({ state: 'created' })
  noticed.length = 0
  const after = await run(spec)
  expect(after).toMatchObject({ state: 'running', engine_id: before.engine_id })
  expect(after.started_at).not.toBe(before.started_at)
  expect(noticed).toEqual([(await pauseOf(spec.id).inspect()).State.Pid])
})

test('a container whose namespace cannot be set up is not started, and leaves nothing', async () => {
  const spec = containerSpec({ network })
  await expect(engine.run(spec, {}, newId(), refuse)).rejects.toThrow('no NIC')
  expect(await onEngine(spec.id)).toEqual([])
})

test('a container that fails at once leaves nothing; one that ran before stays, with its pause container', async () => {
  const broken = containerSpec({ network, command: ['false'] })
  await expect(run(broken)).rejects.toMatchObject({ code: 'exited_at_once' })
  expect(await onEngine(broken.id)).toEqual([])
  const once = shell('test ! -e /ran || exit 9; touch /ran; sleep 600', { network })
  await run(once)
  await eventually(async () => (await inside(once.id, 'test', '-e', '/ran')).code === 0)
  await engine.stop(once.id, 0)
  await expect(run(once)).rejects.toMatchObject({ code: 'exited_at_once' })
  expect((await onEngine(once.id)).map(({ State }) => State)).toEqual(['exited', 'exited'])
})

test('a container is removed with its namespace; a lone pause container is reported, and removed', async () => {
  const spec = containerSpec({ network })
  await run(spec)
  await engine.remove(spec.id)
  expect(await onEngine(spec.id)).toEqual([])
  await run(spec)
  await docker.getContainer(`keelson-${spec.id}`).remove({ force: true })
  const [alone] = await engine.list()
  expect(alone).toMatchObject({ id: spec.id, state: 'created' })
  expect(await engine.find(spec.id)).toMatchObject({ state: 'created', pid: null })
  await engine.remove(spec.id, { engineId: newId() })
  expect(await onEngine(spec.id)).toHaveLength(1)
  await engine.remove(spec.id, { engineId: alone?.engine_id ?? '' })
  expect(await onEngine(spec.id)).toEqual([])
})

test('a container takes another host port only when its first is taken by another program', async () => {
  const taken = await docker.createContainer({
    Image: 'busybox',
    Cmd: ['sleep', '600'],
    Labels: { 'keelson.tenant': testTenant },
    ExposedPorts: { '80/tcp': {} },
    HostConfig: { PortBindings: { '80/tcp': [{ HostIp: '127.0.0.1', HostPort: '22950' }] } },
  })
  await taken.start()
  const fixed = [{ container_port: 80, protocol: 'tcp' as const, host_port: 22_950 }]
  const few = makeEngine([22_950, 22_959])
  const spec = containerSpec({ network, ports: fixed })
  await expect(run(spec, newId(), few)).rejects.toMatchObject({ code: 'port_in_use', port: 22_950 })
  expect(await onEngine(spec.id)).toEqual([])
  const free = [{ container_port: 80, protocol: 'tcp' as const, host_port: null, kept_port: 22_950 }]
  const { ports } = await run(containerSpec({ network, ports: free }), newId(), few)
  expect(ports[0]?.host_port).not.toBe(22_950)
})

test('a container’s network bytes count from its start, although its network existed before', async () => {
  const spec = containerSpec({ network, ports: [{ container_port: 80, protocol: 'tcp', host_port: null }] })
  const first = await run(spec)
  expect(first.network_since).toBeDefined()
  const later = {
    ...first,
    network_since: new Date(Date.parse(first.started_at ?? '') - 60_000).toISOString(),
  }
  const usage = await eventually(async () => (await engine.sample([first]))[0])
  expect(usage.net_rx_bytes).toBeGreaterThanOrEqual(0)
  expect((await engine.sample([later]))[0]).toMatchObject({ net_rx_bytes: 0, net_tx_bytes: 0 })
})

test('a container of another host is left alone', async () => {
  const spec = containerSpec({ network })
  await run(spec)
  expect((await pauseOf(spec.id).inspect()).Config.Labels['keelson.host']).toBe(testHost)
  const other = makeEngine(testPorts, newId())
  expect(await other.find(spec.id)).toBeNull()
  await other.remove(spec.id)
  expect(await onEngine(spec.id)).toHaveLength(2)
})
