import { urlAt } from '../network/load-balancer-endpoints.ts'
import { LoadBalancer } from '../network/load-balancers.ts'
import type { DeployServerDocument } from './deploy-servers.ts'
import { serviceHostName } from './service-routes.ts'
import { type ServiceContainer, type ServiceDocument, serviceStates } from './services.ts'

/** `running:degraded`: a container does not run, or is not healthy. */
export const serviceStatuses = [...serviceStates.all, 'running:degraded'] as const
export type ServiceStatus = (typeof serviceStatuses)[number]

export const containerStates = [
  'starting',
  'running',
  'unhealthy',
  'ended',
  'completed',
  'stopped',
  'unknown',
] as const
export type ContainerState = (typeof containerStates)[number]

/** A host tells every ten seconds. */
const freshMs = 35_000

/** How a container is, by what its host has told. */
export function stateOfContainer(
  { wanted, operation_id }: Pick<ServiceDocument, 'wanted' | 'operation_id'>,
  { name, health, seen_at, ended, is_job }: ServiceContainer,
  now: Date,
): ContainerState {
  if (!(name in wanted)) return 'stopped'
  const isNewest = ended !== null && (seen_at === null || ended.at > seen_at)
  if (isNewest) return ended.exit_code === 0 && is_job ? 'completed' : 'ended'
  const isFresh = seen_at !== null && now.getTime() - seen_at.getTime() < freshMs
  if (!isFresh) return operation_id !== null ? 'starting' : is_job ? 'completed' : 'unknown'
  return health === 'unhealthy' || health === 'starting' ? health : 'running'
}

/** What the service does now. */
export function statusOfService(service: ServiceDocument, now: Date): ServiceStatus {
  if (service.status !== 'running') return service.status
  const states = service.containers.map((one) => stateOfContainer(service, one, now))
  return states.every((state) => state === 'running' || state === 'completed')
    ? 'running'
    : 'running:degraded'
}

/** Where clients reach the ports of a service: URLs by the first part of their host names. */
export async function urlsOfServices(
  server: DeployServerDocument,
  domain: string,
): Promise<(service: ServiceDocument, host: string) => string | null> {
  const { tenant_id, lb_id } = server
  const balancer = lb_id ? await LoadBalancer.findOne({ _id: lb_id, tenant_id }).lean() : null
  return (service, host) =>
    balancer && urlAt(balancer, 'http', serviceHostName(host, service, server, domain))
}
