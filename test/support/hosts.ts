import { join } from 'node:path'
import type Docker from 'dockerode'
import { Host } from '../../models/compute/hosts.ts'
import { eventually } from './eventually.ts'
import { docker as firstEngine } from './engine.ts'
import { platform, type RoleName } from './platform.ts'
import { dockerOf, facts, layout } from './stack.ts'

/** One of the stack's hosts, with direct access to its engine. */
export interface TestHost {
  id: string
  name: string
  roles: { host: RoleName; docker: RoleName }
  docker_host: string
  engine: Docker
}

/** The first host is this machine, the others are network namespaces. */
export async function allHosts(): Promise<TestHost[]> {
  const records = await Host.find({ public_key: { $ne: null } }).lean()
  return Promise.all(
    Array.from({ length: facts().hosts }, async (_, i): Promise<TestHost> => {
      const record = records.find(({ name }) => (i === 0 ? !/-\d$/.test(name) : name.endsWith(`-${i + 1}`)))
      if (!record) throw new Error(`host ${i + 1} has not enrolled`)
      const roles =
        i === 0
          ? ({ host: 'host', docker: 'docker' } as const)
          : ({ host: `host-${i + 1}`, docker: `docker-${i + 1}` } as const)
      const docker_host = i === 0 ? facts().docker_host : `unix://${join(layout.run, `docker-${i + 1}.sock`)}`
      const engine = i === 0 ? firstEngine : dockerOf(docker_host)
      return { id: record._id, name: record.name, roles, docker_host, engine }
    }),
  )
}

/** Opens these hosts to new instances when they are reachable, and closes the others. */
export async function open(hosts: TestHost[]): Promise<void> {
  await Host.updateMany({}, { $set: { cordoned: true } })
  const these = { _id: { $in: hosts.map(({ id }) => id) } }
  const answering = { ...these, unreachable_since: null }
  await eventually(async () => (await Host.countDocuments(answering)) === hosts.length)
  await Host.updateMany(these, { $set: { cordoned: false } })
}

/** Runs `work` while all memory of the host is reserved. */
export async function whileFull<T>({ id }: TestHost, work: () => Promise<T>): Promise<T> {
  const more = 2 ** 30
  await Host.updateOne({ _id: id }, { $inc: { 'reserved.memory_mib': more } })
  try {
    return await work()
  } finally {
    await Host.updateOne({ _id: id }, { $inc: { 'reserved.memory_mib': -more } })
  }
}

/** Restores the state that other tests need: all roles run, and only this machine takes new instances. */
export async function closeFurther(): Promise<void> {
  for (const { name, state } of await platform.roles())
    if (state === 'stopped') await platform.start(name as RoleName)
  await open((await allHosts()).slice(0, 1))
}

/** The hosts whose engines have this instance, with its state, without the platform's records. */
export async function placesOf(id: string): Promise<{ host: string; state: string }[]> {
  const places = await Promise.all(
    (await allHosts()).map(async (host) => {
      const found = await host.engine.listContainers({
        all: true,
        filters: { label: [`keelson.resource=${id}`] },
      })
      return found.map(({ State }) => ({ host: host.id, state: State }))
    }),
  )
  return places.flat()
}
