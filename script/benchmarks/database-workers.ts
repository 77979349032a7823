import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import type Docker from 'dockerode'
import { machineLabel } from '../../drivers/swarm/membership.ts'
import { newId } from '../../lib/ids.ts'
import { type DatabaseType, databaseTypes, engineOf } from '../../models/deploy/engines/index.ts'
import { innerEngine, type Shell, shellOf } from './inside.ts'
import type { Row } from './measure.ts'
import type { Stack } from './stack.ts'

// A worker for databases, and the engines that run there by hand.

const run = promisify(execFile)
const repository = fileURLToPath(new URL('../..', import.meta.url))
const servers = '/api/v1/deploy-servers'

/** No limit on the two cores of a small machine, so that engines start as fast as they can. */
export const allCores = 2

/** A worker with databases, and how to work in it. */
export interface Bench {
  stack: Stack
  /** The path of the deploy server. */
  path: string
  /** The engines that can be had here. */
  types: DatabaseType[]
  /** In the worker. */
  shell: Shell
  docker: Docker
  worker_id: string
  /** The engine of the control plane. */
  manager: Docker
}

interface Server {
  status: string
  status_reason: string | null
  control_plane: { machine_id: string }
  workers: { machine_id: string }[]
}

let images: Promise<DatabaseType[]> | undefined

/** Measures on a deploy server of its own with one large worker. Without the tests' engines there is nothing to measure. */
export async function onWorker(stack: Stack, measure: (bench: Bench) => Promise<Row[]>): Promise<Row[]> {
  const types = await (images ??= makeImages(stack))
  if (types.length === 0) {
    console.error('no engines of databases here: script/bootstrap --tests gets them')
    return []
  }
  // The largest whose cores a machine of two has: the engine refuses more.
  const sizes = { worker_count: 1, worker_instance_type: 'medium', worker_disk_gib: 16 }
  const { id } = await stack.finish('POST', servers, sizes)
  const path = `${servers}/${id}`
  try {
    const { body } = await stack.request<Server>('GET', path)
    if (body.status !== 'ready') throw new Error(`no deploy server: ${body.status_reason}`)
    const worker_id = body.workers[0]?.machine_id ?? ''
    const shell = await shellOf(stack, worker_id)
    const docker = await innerEngine(stack, worker_id)
    const manager = await innerEngine(stack, body.control_plane.machine_id)
    return await measure({ stack, path, types, shell, docker, worker_id, manager })
  } finally {
    await stack.finish('DELETE', path)
  }
}

/** Makes the images of the engines that this machine has, and returns their types. */
async function makeImages({ dockerHost }: Stack): Promise<DatabaseType[]> {
  const env = { ...process.env, KEELSON_DOCKER_HOST: dockerHost }
  const program = join(repository, 'test/support/make-database-images.ts')
  const { stdout } = await run(process.execPath, [program], { env })
  return databaseTypes.filter((type) => stdout.split('\n').includes(type))
}

export const quoted = (word: string): string => `'${word.replaceAll("'", `'\\''`)}'`

/** How the platform starts an engine. */
async function startOf({ shell }: Bench, type: DatabaseType, memory_mib: number) {
  const { env, command, healthy, data_path } = engineOf(type)
  const credentials = { user: 'ua1', password: 'pa1', database: 'da1', root_password: 'ra1' }
  const found = await shell(`docker images --format '{{.Repository}}:{{.Tag}}' keelson/test-${type}`)
  return {
    image: found.split('\n').at(0) ?? '',
    env: Object.entries(env(credentials)).map(([key, value]) => `${key}=${value}`),
    args: command({ memory_mib, configuration: {}, credentials }),
    healthy: `/bin/sh -c ${quoted(healthy)} >/dev/null 2>&1`,
    data_path,
    name: `bare-${newId()}`,
  }
}

/**
 * Runs an engine by hand in the worker, with the environment, the command and the limits that the platform gives it.
 * `tookMs`: until it answers, by the worker's clock.
 */
export async function runBare(bench: Bench, type: DatabaseType, memoryMib: number, cores = allCores) {
  const { shell } = bench
  const { name, image, env, args, healthy, data_path } = await startOf(bench, type, memoryMib)
  const words = [...env.flatMap((one) => ['-e', one]), image, ...args]
  const said = await shell(`
    began=$(date +%s%N)
    docker run -d --init --name ${name} -v ${name}:${data_path} --cpus ${cores} --memory ${memoryMib}m ${words.map(quoted).join(' ')} >/dev/null
    until docker exec ${name} ${healthy}; do sleep 0.05; done
    echo $((($(date +%s%N) - began) / 1000))`)
  return {
    name,
    tookMs: Number(said) / 1000,
    remove: () => shell(`docker rm -f ${name} >/dev/null; docker volume rm ${name} >/dev/null`),
  }
}

/** The same as a service of Swarm, which is removed. Returns the milliseconds until it answers. */
export async function runService(bench: Bench, type: DatabaseType, memoryMib: number): Promise<number> {
  const { shell, manager, worker_id } = bench
  const { name, image, env, args, healthy, data_path } = await startOf(bench, type, memoryMib)
  const Mounts = [{ Type: 'volume' as const, Source: name, Target: data_path }]
  const began = Date.now()
  const service = await manager.createService({
    Name: name,
    TaskTemplate: {
      ContainerSpec: { Image: image, Env: env, Args: args, Init: true, Mounts },
      Resources: { Limits: { NanoCPUs: allCores * 1e9, MemoryBytes: memoryMib * 2 ** 20 } },
      Placement: { Constraints: [`node.labels.${machineLabel}==${worker_id}`] },
    },
    Mode: { Replicated: { Replicas: 1 } },
  })
  const filter = `label=com.docker.swarm.service.name=${name}`
  const answered = await shell(`
    until docker exec "$(docker ps -qf ${filter})" ${healthy}; do sleep 0.05; done
    date +%s%N`)
  await service.remove()
  await shell(`
    while [ -n "$(docker ps -aqf ${filter})" ]; do sleep 0.1; done
    docker volume rm ${name} >/dev/null`)
  return Number(answered) / 1e6 - began // machines have the clock of the host
}
