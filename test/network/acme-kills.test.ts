import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { CertificateOrder, AcmeChallenge } from '../../models/network/certificate-orders.ts'
import {
  type AcmeWorld,
  issued,
  leftOf,
  makeAcmeWorld,
  nothingLeft,
  serve,
  servedTo,
} from '../support/acme.ts'
import type { Accepted } from '../support/client.ts'
import { describeHosts } from '../support/describe-hosts.ts'
import { eventually } from '../support/eventually.ts'
import { closeFurther } from '../support/hosts.ts'
import { describeAcme } from '../support/describe-acme.ts'
import { platform } from '../support/platform.ts'
import { sampled } from '../support/sampled.ts'
import { removeTenants } from '../support/tenants.ts'

// If a process is killed (-9) while a certificate is obtained or renewed, the operation goes on with its order, and ends
// with one certificate and no challenge.

const roles = ['worker', 'host', 'api', 'temporal', 'mongodb'] as const

let world: AcmeWorld

/** Resolves at a moment of the operation, or after it: each lasts only for milliseconds. */
const moments = {
  'its workflow has begun': async ({ operation }: Accepted) => (await operation.now()).state !== 'pending',
  'its order is recorded': async ({ operation: { id: _id } }: Accepted) =>
    CertificateOrder.exists({ _id, tenant_id: world.tenant.id, url: { $ne: null } }),
  'its challenges are published': async ({ operation: { id: order_id } }: Accepted) =>
    AcmeChallenge.exists({ order_id, tenant_id: world.tenant.id }),
  'its certificate is issued': async ({ operation: { id: _id } }: Accepted) =>
    CertificateOrder.exists({ _id, tenant_id: world.tenant.id, certificate_pem: { $ne: null } }),
}
type Moment = keyof typeof moments

async function killAt(moment: Moment, role: (typeof roles)[number], accepted: Accepted): Promise<void> {
  await eventually(
    async () =>
      (await moments[moment](accepted)) ||
      !['pending', 'running'].includes((await accepted.operation.now()).state),
  )
  await platform.kill(role)
  await platform.start(role)
  expect(await accepted.operation.end()).toMatchObject({ state: 'succeeded', error: null })
  expect(await leftOf(world.tenant)).toEqual(nothingLeft)
}

const points = (Object.keys(moments) as Moment[]).flatMap((when) => roles.map((role) => ({ when, role })))

const suite = () => {
  beforeAll(async () => {
    await closeFurther()
    world = await makeAcmeWorld()
  })
  afterAll(async () => {
    await world?.pebble.close()
    await removeTenants()
  })

  test.each(sampled(points, 2))(
    'a certificate is obtained once if $role is killed when $when',
    async ({ when, role }) => {
      const accepted = await world.tenant.owner.certificates.order('killed.example')
      await killAt(when, role, accepted)
      const { status, fingerprint } = await world.tenant.owner.certificates.get(accepted.id)
      expect(status).toBe('available')
      const port = await serve(world, [accepted.id])
      const root = await world.pebble.root()
      expect(await servedTo(world.address, port, 'killed.example', root)).toBe(fingerprint)
    },
  )

  test.each(sampled(points, 2))(
    'a certificate is renewed, and served all the time, if $role is killed when $when',
    async ({ when, role }) => {
      const before = await issued(world.tenant, 'renewed.example')
      const port = await serve(world, [before.id])
      const root = await world.pebble.root()
      const served = () => servedTo(world.address, port, 'renewed.example', root)
      const accepted = await world.tenant.owner.certificates.renew(before.id)
      const over = new AbortController()
      const asking = async (): Promise<Set<string>> => {
        const seen = new Set<string>()
        while (!over.signal.aborted) seen.add(await served())
        return seen
      }
      const [, seen] = await Promise.all([killAt(when, role, accepted).finally(() => over.abort()), asking()])
      const after = await world.tenant.owner.certificates.get(before.id)
      expect(after).toMatchObject({ status: 'available' })
      expect(after.fingerprint).not.toBe(before.fingerprint)
      for (const one of seen) expect([before.fingerprint, after.fingerprint]).toContain(one)
      await eventually(async () => (await served()) === after.fingerprint)
    },
  )
}

describeHosts('Certificates under kills:', () => describeAcme('', suite))
