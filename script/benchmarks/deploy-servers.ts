import { execFile } from 'node:child_process'
import { request } from 'node:http'
import { text } from 'node:stream/consumers'
import { setTimeout as delay } from 'node:timers/promises'
import { promisify } from 'node:util'
import Docker from 'dockerode'
import { machineLabel } from '../../drivers/swarm/membership.ts'
import { buildRows } from './builds.ts'
import { hostEngine, innerEngine } from './inside.ts'
import { median, type Row, timed } from './measure.ts'
import type { Stack } from './stack.ts'

const run = promisify(execFile)
const creations = 5
const releases = 9
const atOnce = 20
const roundsAtOnce = 3
const barePort = 19_999
const servers = '/api/v1/deploy-servers'

interface Server {
  id: string
  status: string
  status_reason: string | null
  control_plane: { machine_id: string }
  workers: { machine_id: string; ip_address: string }[]
}

/** A deploy server from its creation to twenty deployments at once, and a release beside `docker service update`. */
export async function deployServers(stack: Stack): Promise<Row[]> {
  const created: number[] = []
  for (let round = 1; round < creations; round++) {
    const { server, took } = await create(stack)
    created.push(took)
    await remove(stack, server)
  }
  const { server, took } = await create(stack)
  created.push(took)
  const machineId = server.workers[0]?.machine_id ?? ''
  try {
    const [manager, worker] = await Promise.all([
      innerEngine(stack, server.control_plane.machine_id),
      innerEngine(stack, machineId),
    ])
    const idle = await memoryMib(stack, server.control_plane.machine_id)
    await loadImages(stack, worker)
    const app = await makeApplication(stack, server, 'shop')
    const bare = await bareService(stack, manager, server)
    const [ours, theirs]: [number[], number[]] = [[], []]
    for (let round = 0; round < releases; round++) {
      const tag = `v${(round % 2) + 2}`
      ours.push(await release(stack, server, app, tag))
      theirs.push(await bare.update(tag))
    }
    await bare.remove()
    const many = await manyAtOnce(stack, server)
    const built = await buildRows(stack, {
      id: server.id,
      machineId,
      engine: await hostEngine(stack, machineId),
    })
    const withImages = await memoryMib(stack, server.control_plane.machine_id)
    return [
      { what: 'deploy server with one worker, created', unit: 's', figures: created, note: '< 15' },
      { what: 'idle memory of its control plane', unit: 'MiB', figures: [idle], note: '< 150' },
      {
        what: 'the same after builds, with its registry',
        unit: 'MiB',
        figures: [withImages],
        note: '< 150',
      },
      { what: 'new tag, to its first answer', unit: 'ms', figures: ours },
      { what: '`docker service update`, to the first answer', unit: 'ms', figures: theirs },
      { what: 'more, at p50', unit: 'ms', figures: [median(ours) - median(theirs)], note: '≤ 300' },
      many,
      ...built,
    ]
  } finally {
    await remove(stack, server)
  }
}

/** A new deploy server with one worker, and the seconds until it is ready. */
async function create(stack: Stack): Promise<{ server: Server; took: number }> {
  const sizes = { worker_count: 1, worker_instance_type: 'medium', worker_disk_gib: 4 }
  const took = await timed(() => stack.finish('POST', servers, sizes))
  const { body: list } = await stack.request<{ items: Server[] }>('GET', servers)
  const server = list.items[0]
  if (server?.status !== 'ready') throw new Error(`no deploy server: ${server?.status_reason}`)
  return { server, took: took / 1000 }
}

const remove = (stack: Stack, { id }: Server): Promise<unknown> => stack.finish('DELETE', `${servers}/${id}`)

const outerEngine = (stack: Stack): Docker => {
  const url = new URL(stack.dockerHost)
  return url.protocol === 'unix:'
    ? new Docker({ socketPath: url.pathname, host: undefined })
    : new Docker({ host: url.hostname, port: url.port, protocol: 'http' })
}

/** What the machine and all in it use, without the files that the kernel keeps in memory. */
async function memoryMib(stack: Stack, machineId: string): Promise<number> {
  const engine = outerEngine(stack)
  const filters = { label: [`keelson.resource=${machineId}`] }
  const [found] = await engine.listContainers({ filters })
  const { memory_stats } = await engine.getContainer(found?.Id ?? '').stats({ stream: false })
  const { total_inactive_file, inactive_file } = memory_stats.stats as unknown as Record<string, number>
  return (memory_stats.usage - (total_inactive_file ?? inactive_file ?? 0)) / 2 ** 20
}

/** `bench:v1` to `bench:v3` answer with their version, at once. Builds begin with busybox. */
async function loadImages(stack: Stack, worker: Docker): Promise<void> {
  const engine = outerEngine(stack)
  await text(await worker.loadImage(await engine.getImage('busybox:latest').get()))
  const serve = 'mkdir /tmp/w; echo "$VERSION" >/tmp/w/index.html; exec httpd -f -p 3000 -h /tmp/w'
  for (const tag of ['v1', 'v2', 'v3']) {
    const container = await engine.createContainer({ Image: 'busybox:latest', Cmd: ['true'] })
    const changes = [`ENV VERSION=${tag}`, `CMD ${JSON.stringify(['sh', '-c', serve])}`]
    await container.commit({ repo: 'bench', tag, changes })
    await container.remove()
    await text(await worker.loadImage(await engine.getImage(`bench:${tag}`).get()))
  }
}

interface App {
  id: string
  url: string
}

const small = { image: 'bench', port: 3000, memory_mib: 32, cpu_cores: 0.25, stop_grace_sec: 1 }

async function makeApplication(stack: Stack, { id }: Server, name: string): Promise<App> {
  const path = `${servers}/${id}/applications`
  const made = await stack.request<App>('POST', path, { ...small, name, tag: 'v1' })
  for (;;) {
    const { body } = await stack.request<App & { status: string }>('GET', `${path}/${made.body.id}`)
    if (body.status === 'running') return body
    await delay(100)
  }
}

/** Milliseconds from the request to the first answer of the tag through the load balancer. */
async function release(stack: Stack, { id }: Server, app: App, tag: string): Promise<number> {
  const path = `${servers}/${id}/applications/${app.id}/deploy`
  const began = performance.now()
  const ended = stack.finish('POST', path, { tag })
  const { host, port } = new URL(app.url)
  await until(() => ask({ host: '127.0.0.1', port: Number(port || 80), headers: { host } }), tag)
  const took = performance.now() - began
  await ended // the former release drains, which is not part of it
  return took
}

/** A service of the same image, made and updated as by hand. */
async function bareService(stack: Stack, manager: Docker, { control_plane, workers }: Server) {
  const [worker] = workers
  const Labels = {}
  const spec = (tag: string) => ({
    Name: 'bare',
    Labels,
    TaskTemplate: {
      ContainerSpec: { Image: `bench:${tag}`, StopGracePeriod: 1e9 },
      Resources: { Limits: { NanoCPUs: small.cpu_cores * 1e9, MemoryBytes: small.memory_mib * 2 ** 20 } },
      Placement: { Constraints: [`node.labels.${machineLabel}==${worker?.machine_id}`] },
    },
    Mode: { Replicated: { Replicas: 1 } },
    EndpointSpec: {
      Mode: 'dnsrr' as const,
      Ports: [
        { Protocol: 'tcp' as const, PublishMode: 'host' as const, TargetPort: 3000, PublishedPort: barePort },
      ],
    },
  })
  await manager.createService(spec('v1'))
  const service = manager.getService('bare')
  const pid = await pidOf(stack, control_plane.machine_id)
  const url = `http://${worker?.ip_address}:${barePort}/`
  const look = () =>
    run('nsenter', ['-t', String(pid), '-n', 'curl', '-s', '--max-time', '2', url]).then(
      ({ stdout }) => stdout.trim(),
      () => null,
    )
  await until(look, 'v1')
  return {
    async update(tag: string): Promise<number> {
      const began = performance.now()
      const { Version } = (await service.inspect()) as { Version: { Index: number } }
      await service.update({ version: Version.Index, ...spec(tag) })
      await until(look, tag)
      return performance.now() - began
    },
    remove: () => service.remove(),
  }
}

async function pidOf(stack: Stack, machineId: string): Promise<number> {
  const engine = outerEngine(stack)
  const filters = { label: [`keelson.resource=${machineId}`] }
  const found = (await engine.listContainers({ filters })).find(({ State }) => State === 'running')
  return (await engine.getContainer(found?.Id ?? '').inspect()).State.Pid
}

/** Twenty applications are deployed at once. */
async function manyAtOnce(stack: Stack, server: Server): Promise<Row> {
  const names = Array.from({ length: atOnce }, (_, index) => `many-${index + 1}`)
  const apps = await Promise.all(names.map((name) => makeApplication(stack, server, name)))
  const figures: number[] = []
  for (let round = 0; round < roundsAtOnce; round++) {
    const tag = `v${(round % 2) + 2}`
    const deploy = ({ id }: App) =>
      stack.finish('POST', `${servers}/${server.id}/applications/${id}/deploy`, { tag })
    figures.push((await timed(() => Promise.all(apps.map(deploy)))) / 1000)
  }
  return { what: `${atOnce} deployments at once on one worker`, unit: 's', figures }
}

async function until(look: () => Promise<string | null>, wanted: string): Promise<void> {
  while ((await look()) !== wanted) await delay(10)
}

const ask = (at: object): Promise<string | null> =>
  new Promise((resolve) => {
    const none = (): void => resolve(null)
    const asked = request({ ...at, agent: false, timeout: 2_000 }, (response) => {
      text(response).then((answer) => resolve(answer.trim()), none)
    })
    asked.on('timeout', () => asked.destroy())
    asked.on('error', none)
    asked.end()
  })
