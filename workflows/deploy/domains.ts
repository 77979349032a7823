import { ApplicationFailure, proxyLocalActivities } from '@temporalio/workflow'
import type { DomainActivities } from '../../activities/deploy/domains.ts'
import { isFailure } from '../carry-out.ts'
import { durable, type Work } from '../durable.ts'
import { balance } from './deployments.ts'

export const domains = proxyLocalActivities<DomainActivities>({
  startToCloseTimeout: '10 s', // a few queries
  retry: { initialInterval: '100 ms', maximumInterval: '5 s' },
})

type Domain = Work<Record<string, never>>

/** The domain is served without TLS until it has its certificate, and if it gets none. */
async function publish(work: Domain): Promise<{ status: string }> {
  const { id, progress } = work
  progress('sending its requests to the application')
  await balance(await domains.routeDomain(id))
  const { tls, deploy_server_id } = await domains.domainFacts(id)
  if (tls) {
    progress('obtaining its certificate')
    await obtainCertificate(work)
    progress('having the load balancer use its certificate')
    await listen(work, deploy_server_id)
    await domains.noteSecured(id)
    await balance(await domains.routeDomain(id)) // which may redirect to HTTPS now
  }
  return { status: 'active' }
}

/** A certificate that was not issued stays, for the next try. */
async function obtainCertificate({ id, carryOut }: Domain): Promise<void> {
  const { certificate } = await domains.domainFacts(id)
  try {
    if (certificate.id === null)
      await carryOut({ kind: 'certificate' }, 'create', certificate.fields, {
        key: 'certificate',
        undo: null,
      })
    else if (certificate.status !== 'available')
      await carryOut(
        { kind: 'certificate', id: certificate.id },
        'renew',
        {},
        { waitsForOthers: true, undo: null },
      )
  } finally {
    await domains.noteCertificate(id)
  }
}

const triesToListen = 10

/**
 * Has the load balancer listen for all domains and published databases, which come and go side by side: so it is looked at
 * again after each change. `key`: a name of its own for each call in one operation.
 */
export async function listen(
  { carryOut }: Work<unknown>,
  deployServerId: string,
  key = 'listeners',
): Promise<void> {
  for (let tries = 1; tries <= triesToListen; tries++) {
    const wanted = await domains.wantedListeners(deployServerId)
    if (!wanted) return
    const { lb_id, listeners } = wanted
    const rules = { key: `${key} ${tries}`, waitsForOthers: true, undo: null }
    await carryOut({ kind: 'load_balancer', id: lb_id }, 'update', { listeners }, rules)
  }
  throw ApplicationFailure.nonRetryable('The load balancer keeps changing', 'state_conflict')
}

export const createDomain = durable(publish, { onFailure: 'error', onCancel: 'error' })

export const retryDomain = durable(publish, { onFailure: 'error', onCancel: 'error' })

export const deleteDomain = durable(
  async (work) => {
    const { id, progress, carryOut } = work
    progress('removing the route of the domain')
    await balance(await domains.unrouteDomain(id))
    const { deploy_server_id, certificate } = await domains.domainFacts(id)
    await listen(work, deploy_server_id)
    if (certificate.id !== null) {
      progress('deleting its certificate')
      const rules = { waitsForOthers: true, undo: null }
      try {
        await carryOut({ kind: 'certificate', id: certificate.id }, 'delete', {}, rules)
      } catch (error) {
        if (!isFailure(error, 'not_found')) throw error
      }
    }
    return 'deleted'
  },
  { final: true, onFailure: 'error' },
)
