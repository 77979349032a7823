import { Caller } from './clients/caller.ts'
import { certificatesOf } from './clients/certificates.ts'
import { containersOf } from './clients/containers.ts'
import { deployServersOf } from './clients/deploy-servers.ts'
import { disksOf } from './clients/disks.ts'
import { loadBalancersOf } from './clients/load-balancers.ts'
import { microvmsOf } from './clients/microvms.ts'
import { vmsOf } from './clients/vms.ts'

export { type Answer, ask, type Json } from './clients/ask.ts'
export type { Accepted } from './clients/caller.ts'
export { type ContainerBody, shell, sleeper } from './clients/containers.ts'
export type { CertificateBody } from './clients/certificates.ts'
export type { DeployServerBody } from './clients/deploy-servers.ts'
export type { DiskBody } from './clients/disks.ts'
export type { LoadBalancerBody, RouteBody } from './clients/load-balancers.ts'
export { sleepingGuest } from './clients/microvms.ts'
export { Operation, type OperationBody } from './clients/operations.ts'
export { smallVm } from './clients/vms.ts'

/** A user or an API client that calls the API with a token. Each resource has its own file in `clients/`. */
export class Client extends Caller {
  readonly containers = containersOf(this)
  readonly microvms = microvmsOf(this)
  readonly vms = vmsOf(this)
  readonly disks = disksOf(this)
  readonly certificates = certificatesOf(this)
  readonly loadBalancers = loadBalancersOf(this)
  readonly deployServers = deployServersOf(this)
}
