import { ApplicationFailure, Context } from '@temporalio/activity'
import type { AuthorityAccount, CertificateAuthority } from '../../drivers/certificate-authorities.ts'
import { AccountUnknown, AuthorityRefused } from '../../drivers/errors.ts'
import {
  accountOf,
  type CertificateOrderDocument,
  dropEndedOrders,
  dropOrder,
  findOrder,
  installCertificate,
  openOrder,
  orderKey,
  publishChallenges,
  recordAccount,
  recordOrder,
} from '../../models/network/certificate-orders.ts'
import { beginRenewals, warnOfExpiry } from '../../models/network/certificate-renewals.ts'
import { answeringChallenges, replicasOf } from '../../models/network/load-balancers.ts'
import { answering } from '../compute/answering.ts'
import { permanently } from '../failures.ts'

// An authority answers within seconds.
const pollMs = 1_000
const patienceMs = 5 * 60_000

/** A replica that answers challenges: its load balancer and its host. */
export interface Answering {
  id: string
  host_id: string
}

export function makeCertificateActivities({ authority: reached }: { authority: CertificateAuthority }) {
  const authority = leftWhenCancelled(reached)

  /** The tenant's account, which the authority knows. */
  async function registered({ tenant_id }: CertificateOrderDocument): Promise<AuthorityAccount> {
    const account = await accountOf(tenant_id, authority.directory)
    const { key } = account
    if (account.url !== null) return { url: account.url, key }
    const url = await authority.register(key)
    await recordAccount(account, url)
    return { url, key }
  }

  async function place(order: CertificateOrderDocument, account: AuthorityAccount): Promise<string> {
    try {
      const url = await authority.order(account, order.domains)
      await recordOrder(order, { url })
      return url
    } catch (error) {
      // The next attempt registers the key again.
      if (error instanceof AccountUnknown)
        await recordAccount(await accountOf(order.tenant_id, authority.directory), null)
      throw error
    }
  }

  /** An order that `orderCertificate` has placed. */
  async function placed(operationId: string) {
    const order = await findOrder(operationId)
    if (!order?.url) throw ApplicationFailure.nonRetryable('The order no longer exists', 'not_found')
    return { order, url: order.url, account: await registered(order) }
  }

  return {
    /** Places the order of this operation and publishes its challenges. Returns the replicas that are to answer. */
    async orderCertificate(operationId: string, certificateId: string): Promise<Answering[]> {
      const order = await permanently(() => openOrder(operationId, certificateId))
      const replicas = await answeringReplicas(order.tenant_id)
      const account = await registered(order)
      const url = order.url ?? (await place(order, account))
      const challenges = await authority.challenges(account, url)
      await permanently(() => publishChallenges(order, challenges))
      return challenges.length ? replicas : []
    },

    /** Has the authority check the challenges, and waits until it has. */
    async proveDomains(operationId: string): Promise<void> {
      const { account, url } = await placed(operationId)
      await poll('The authority did not check the domains in time', async () =>
        (await authority.prove(account, url)) ? true : null,
      )
    },

    /** Has the authority issue the certificate, and records it. */
    async issueCertificate(operationId: string): Promise<void> {
      const { order, account, url } = await placed(operationId)
      if (order.certificate_pem !== null) return
      const key = await orderKey(order)
      const certificate_pem = await poll('The authority did not issue the certificate in time', () =>
        authority.issue(account, url, key, order.domains),
      )
      await recordOrder(order, { certificate_pem })
    },

    installCertificate: (operationId: string): Promise<void> =>
      permanently(() => installCertificate(operationId)),

    dropOrder,

    /** Begins due renewals, warns of certificates that expire, and clears up after ended orders. */
    async lookAfterCertificates(): Promise<{ renewals: number; warnings: number }> {
      await dropEndedOrders()
      const renewals = await beginRenewals()
      return { renewals, warnings: await warnOfExpiry() }
    },
  }
}

export type CertificateActivities = ReturnType<typeof makeCertificateActivities>

/**
 * A cancelled activity does not wait for an answer. What it asked for may still happen at the authority, where an order
 * that nobody completes expires.
 */
function leftWhenCancelled(authority: CertificateAuthority): CertificateAuthority {
  return {
    directory: authority.directory,
    register: (key) => orCancelled(authority.register(key)),
    order: (account, domains) => orCancelled(authority.order(account, domains)),
    challenges: (account, order) => orCancelled(authority.challenges(account, order)),
    prove: (account, order) => orCancelled(authority.prove(account, order)),
    issue: (...asked) => orCancelled(authority.issue(...asked)),
  }
}

const orCancelled = <T>(call: Promise<T>): Promise<T> => Promise.race([call, Context.current().cancelled])

/** Throws if the tenant has no load balancer to answer challenges. */
async function answeringReplicas(tenantId: string): Promise<Answering[]> {
  const balancers = await answeringChallenges(tenantId)
  if (balancers.length === 0)
    throw ApplicationFailure.nonRetryable(
      'No load balancer has an http listener to answer the authority',
      'no_http_listener',
    )
  const replicas = await replicasOf(...balancers.map(({ _id }) => _id))
  const found: Answering[] = []
  for (const { load_balancer_id: id, host_id } of replicas)
    if (host_id && (await answering(host_id))) found.push({ id, host_id })
  return found
}

/** Repeats `step` until it returns something. Ends when the activity is cancelled. */
async function poll<T>(late: string, step: () => Promise<T | null>): Promise<T> {
  const until = Date.now() + patienceMs
  for (;;) {
    const value = await step()
    if (value !== null) return value
    if (Date.now() > until) throw new AuthorityRefused(late)
    await Context.current().sleep(pollMs)
  }
}
