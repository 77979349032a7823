import { afterCommit } from '../database.ts'

// Hosts learn of changes with the answer to their next report. These news make them ask at once.

/**
 * The load balancers with these ids, those that use the certificate, the CA trust or one of the instances, or those that
 * answer the ACME challenges of the tenant.
 */
export type Concerned =
  | { ids: string[] }
  | { certificate_id: string }
  | { ca_trust_id: string }
  | { instance_ids: string[] }
  | { challenges_of: string }

let tell: (concerned: Concerned) => void = () => {}

/** Sets who tells the hosts. The api and worker roles do (tell-hosts.ts). */
export const onLoadBalancersChanged = (teller: typeof tell): void => {
  tell = teller
}

/** Tells the hosts of these load balancers after the current transaction. */
export const loadBalancersChanged = (concerned: Concerned): void => afterCommit(() => tell(concerned))
