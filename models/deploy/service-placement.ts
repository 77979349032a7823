import { newId } from '../../lib/ids.ts'
import { transaction } from '../database.ts'
import { lockParent } from '../parents.ts'
import type { ComposePlan, PlannedContainer } from './compose/plan.ts'
import { DeployServer, type DeployServerDocument, deployServerResource } from './deploy-servers.ts'
import { registryFor } from './image-copies.ts'
import { placeTogether } from './places.ts'
import { hostPartOf } from './service-routes.ts'
import { openRevision, Service, type ServiceContainer, type ServiceDocument } from './services.ts'

// Where the containers of a service run: all on one worker, because its volumes are there.

/**
 * Chooses the worker of a service, unless it has one, and a port of it for each port that the next revision opens. The ports
 * of the former one stay until the next is settled, because its containers run until then. Throws NoRoom and `worker_away`.
 * Idempotent.
 */
export const placeService = ({
  _id,
  tenant_id,
  deploy_server_id,
}: ServiceDocument): Promise<ServiceDocument> =>
  transaction(async () => {
    const server = await lockParent(deployServerResource, tenant_id, deploy_server_id)
    const service = await Service.findOne({ _id, tenant_id }).orFail().lean()
    const { plan } = await openRevision(
      tenant_id,
      service.next_sealed === '-' ? service.revision_sealed : service.next_sealed,
    )
    const turn = { next: server.next_port }
    const there = new Map(service.containers.map((one) => [one.name, one]))
    const missing = plan.containers.flatMap(({ name, ports }) =>
      ports.filter((port) => !there.get(name)?.ports.some((one) => one.port === port)),
    )
    const memory_mib = plan.containers.reduce((sum, one) => sum + one.memory_mib, 0)
    const { node, machine_ports } = await placeTogether(server, turn, {
      itself: _id,
      node: service.volume_node,
      memory_mib,
      ports: missing.length,
    })
    const next: ServiceContainer[] = []
    for (const one of plan.containers) {
      const former = there.get(one.name)
      const record = await recordOf(server, one, former, machine_ports)
      const leaving = former?.ports.filter(({ port }) => !one.ports.includes(port)) ?? []
      next.push({ ...record, ports: [...record.ports, ...leaving] })
    }
    const names = new Set(next.map(({ name }) => name))
    // Those that the next revision leaves out run until it is brought.
    const leaving = service.containers.filter(({ name }) => !names.has(name))
    const set = { containers: [...next, ...leaving], volume_node: node }
    await Service.updateOne({ _id, tenant_id }, { $set: set })
    await DeployServer.updateOne({ _id: server._id, tenant_id }, { $set: { next_port: turn.next } })
    return { ...service, ...set }
  }, deploy_server_id)

/** The containers of a plan that a service has, as they were placed for it. */
export async function placedAs(
  { tenant_id, deploy_server_id, containers }: ServiceDocument,
  plan: Pick<ComposePlan, 'containers'>,
): Promise<ServiceContainer[]> {
  const server = await DeployServer.findOne({ _id: deploy_server_id, tenant_id }).orFail().lean()
  const placed = plan.containers.map(async (one) => {
    const there = containers.find(({ name }) => name === one.name)
    return there ? [await recordOf(server, one, there, [])] : []
  })
  return (await Promise.all(placed)).flat()
}

async function recordOf(
  server: DeployServerDocument,
  { name, image, memory_mib, ports, restart, built }: PlannedContainer,
  former: ServiceContainer | undefined,
  free: number[],
): Promise<ServiceContainer> {
  return {
    name,
    service_id: former?.service_id ?? newId(),
    image,
    memory_mib,
    ports: ports.map((port) => ({
      port,
      machine_port: former?.ports.find((one) => one.port === port)?.machine_port ?? free.shift() ?? 0,
      host: hostPartOf(name, port, ports),
    })),
    is_job: restart === 'no',
    health: former?.health ?? null,
    seen_at: former?.seen_at ?? null,
    ended: former?.ended ?? null,
    ...(built ? { pulls_from: await registryFor(server, built) } : {}),
  }
}
