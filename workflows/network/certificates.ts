import {
  ActivityFailure,
  ApplicationFailure,
  isCancellation,
  proxyActivities,
  proxyLocalActivities,
} from '@temporalio/workflow'
import type { HostActivities } from '../../activities/host/index.ts'
import type { Answering, CertificateActivities } from '../../activities/network/certificates.ts'
import type { Outcome } from '../../activities/operations.ts'
import { durable, type Work } from '../durable.ts'

const records = proxyLocalActivities<CertificateActivities>({
  startToCloseTimeout: '10 s', // one transaction
  retry: { initialInterval: '100 ms', maximumInterval: '5 s' },
})

const authority = proxyActivities<CertificateActivities>({
  startToCloseTimeout: '10 minutes', // each step gives up after five by itself
  heartbeatTimeout: '10 s', // detects a killed worker
  // An authority that is away for some minutes fails the operation. A due renewal is tried again later.
  retry: { initialInterval: '1 s', maximumInterval: '30 s', maximumAttempts: 8 },
  // A step that still runs must not follow its undo.
  cancellationType: 'WAIT_CANCELLATION_COMPLETED',
})

/** A host that runs a load balancer. A challenge that is asked for too early fails for good, so this is patient. */
const on = (hostId: string) =>
  proxyActivities<HostActivities>({
    taskQueue: `host-${hostId}`,
    scheduleToStartTimeout: '15 s', // a lost host is not waited for
    startToCloseTimeout: '60 s',
    heartbeatTimeout: '10 s', // detects a killed host worker
    scheduleToCloseTimeout: '3 minutes', // the API, which the host asks, or the host may be restarting
    retry: { initialInterval: '500 ms', maximumInterval: '5 s' },
    cancellationType: 'WAIT_CANCELLATION_COMPLETED',
  })

/** Has the replicas answer the challenges. One that fails is left to the authority's check, which may ask another. */
async function publish(replicas: Answering[]): Promise<void> {
  await Promise.all(
    replicas.map(({ id, host_id }) =>
      on(host_id)
        .runLoadBalancerOnHost(id)
        .catch((error: unknown) => {
          if (isCancellation(error)) throw error
        }),
    ),
  )
}

/** After its last attempt a step tells the tenant why the authority was unavailable. */
async function asking<T>(step: () => Promise<T>): Promise<T> {
  try {
    return await step()
  } catch (error) {
    const cause = error instanceof ActivityFailure ? error.cause : null
    if (cause instanceof ApplicationFailure && cause.type?.startsWith('authority_'))
      throw ApplicationFailure.nonRetryable(cause.message, cause.type)
    throw error
  }
}

/** The former certificate stays in use until the new one is installed. */
async function obtain({
  id,
  operation_id,
  undo,
  progress,
  settle,
}: Work<Record<string, never>>): Promise<Outcome> {
  progress('ordering the certificate')
  undo(() => records.dropOrder(operation_id))
  const replicas = await asking(() => authority.orderCertificate(operation_id, id))
  progress('having the load balancers answer the challenges')
  await publish(replicas)
  progress('waiting for the authority to check the domains')
  await asking(() => authority.proveDomains(operation_id))
  progress('waiting for the certificate')
  await asking(() => authority.issueCertificate(operation_id))
  await settle(() => records.installCertificate(operation_id))
  return { status: 'available' }
}

export const createCertificate = durable(obtain)

export const renewCertificate = durable(obtain, { onFailure: 'error', cancelRestores: true })

/** Only a certificate that no load balancer uses can be deleted. It is on no host. */
export const deleteCertificate = durable(() => Promise.resolve('deleted' as const), { final: true })

const looks = proxyActivities<CertificateActivities>({
  startToCloseTimeout: '30 minutes', // accepts each due renewal in a transaction of its own
  heartbeatTimeout: '10 s', // detects a killed worker
})

/** Runs by a schedule (worker/schedules.ts), and begins one operation for each due renewal. */
export const lookAfterCertificates = (): Promise<{ renewals: number; warnings: number }> =>
  looks.lookAfterCertificates()
