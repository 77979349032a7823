import { certificateSchedule } from '../../../worker/schedules.ts'
import { makeAcmeWorld, type AcmeWorld } from '../../support/acme.ts'
import { makeAuthority } from '../../support/certificates.ts'
import type { Json, Operation } from '../../support/client.ts'
import { allHosts, closeFurther, open } from '../../support/hosts.ts'
import { looked, newNic, tenant, type Stories } from '../world.ts'

const { owner } = tenant

export const loadBalancerStories: Stories = {
  'createLoadBalancer.running': async () =>
    (await owner.loadBalancers.create((await newNic()).subnet_id)).operation,
  'createLoadBalancer.failed': async () => {
    const { subnet_id } = await newNic()
    await open([])
    return (await owner.loadBalancers.create(subnet_id)).operation
  },
  'updateLoadBalancer.running': async () =>
    (await owner.loadBalancers.update(await runningBalancer(), { log_cap_mib: 8 })).operation,
  'rescheduleLoadBalancer.running': async () => {
    const id = await runningBalancer()
    await open((await allHosts()).slice(1))
    return (await owner.loadBalancers.reschedule(id)).operation
  },
  'deleteLoadBalancer.deleted': async () =>
    (await owner.loadBalancers.delete(await runningBalancer())).operation,
  'createCertificate.available': async () => (await owner.certificates.order((await acme()).name)).operation,
  'createCertificate.failed': async () =>
    (await owner.certificates.order(await (await acme()).lost())).operation,
  'renewCertificate.available': async () => (await owner.certificates.renew(await certificate())).operation,
  'renewCertificate.failed': async () => {
    const id = await certificate()
    await (await acme()).lost()
    return (await owner.certificates.renew(id)).operation
  },
  lookAfterCertificates: () => looked(certificateSchedule),
  'deleteCertificate.deleted': async () => {
    const { cert, key } = await (await makeAuthority()).issue(['shop.example'])
    return deletionOf('certificates', { certificate_pem: cert, private_key_pem: key })
  },
  'deleteCaTrust.deleted': async () =>
    deletionOf('ca-trusts', { certificates_pem: (await makeAuthority()).cert }),
}

/** A load balancer in a new subnet. */
async function runningBalancer(): Promise<string> {
  await closeFurther()
  return (await owner.loadBalancers.make((await newNic()).subnet_id)).id
}

let theWorld: AcmeWorld | null = null
/** A name that leads to a load balancer, until it is lost. */
async function acme(): Promise<{ name: string; lost: () => Promise<string> }> {
  await closeFurther()
  theWorld ??= await makeAcmeWorld(tenant)
  const { pebble } = theWorld
  const name = 'shop.example'
  await pebble.resolve(name, null)
  return { name, lost: () => pebble.resolve(name, '127.0.0.99').then(() => name) }
}

export async function closeAcme(): Promise<void> {
  await theWorld?.pebble.close()
  theWorld = null
}

async function certificate(): Promise<string> {
  const { id, operation } = await owner.certificates.order((await acme()).name)
  await operation.success()
  return id
}

/** Uploads a certificate or CA trust, and deletes it. */
async function deletionOf(path: string, body: Json): Promise<Operation> {
  const { body: made } = await owner.ask('POST', `/api/v1/${path}`, { name: path, ...body })
  return (await owner.begin('DELETE', `/api/v1/${path}/${String(made['id'])}`)).operation
}
