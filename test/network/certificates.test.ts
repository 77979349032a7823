import { beforeAll, describe, expect, test } from '@jest/globals'
import { Certificate } from '../../models/network/certificates.ts'
import { type Authority, makeAuthority } from '../support/certificates.ts'
import type { Answer } from '../support/client.ts'
import { mistakeAt } from '../support/refusals.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'
import { uploadsOf } from '../support/uploaded-certificates.ts'
import { makeSubnet, makeVpc } from '../support/vpcs.ts'

// Certificates and CA trusts in the API: fields, rules and refusals.

let tenant: TestTenant
let authority: Authority
let uploads: ReturnType<typeof uploadsOf>
beforeAll(async () => {
  tenant = await makeTenant()
  authority = await makeAuthority()
  uploads = uploadsOf(tenant, authority)
})

const ask = (method: string, path: string, body?: unknown): Promise<Answer> =>
  tenant.owner.ask(method, `/api/v1${path}`, body)

const inDays = (days: number): Date => new Date(Date.now() + days * 86_400_000)

describe('a certificate', () => {
  test('shows its names and expiry, and never its key', async () => {
    const { status, body } = await uploads.upload(['shop.example', 'www.shop.example', '10.0.0.9'])
    expect(status).toBe(201)
    expect(body).toMatchObject({
      status: 'available',
      domains: ['shop.example', 'www.shop.example', '10.0.0.9'],
      issuer: 'CN=Test CA',
      fingerprint: expect.stringMatching(/^[0-9a-f]{64}$/),
    })
    const shown = await tenant.owner.get(`/api/v1/certificates/${String(body['id'])}`)
    expect(shown).toEqual(body)
    expect(JSON.stringify(shown)).not.toMatch(/PRIVATE|sealed/)
    const stored = await Certificate.findOne({ tenant_id: tenant.id, _id: String(body['id']) }).lean()
    expect(JSON.stringify(stored)).not.toContain('PRIVATE')
  })

  test('that is expired, not valid yet, or of a weak key is refused', async () => {
    expect(await uploads.upload(['a.example'], { from: inDays(-9), until: inDays(-1) })).toMatchObject(
      mistakeAt('/certificate_pem'),
    )
    expect(await uploads.upload(['a.example'], { from: inDays(1), until: inDays(9) })).toMatchObject(
      mistakeAt('/certificate_pem'),
    )
    expect(await uploads.upload(['a.example'], { key: 'short rsa' })).toMatchObject(
      mistakeAt('/private_key_pem'),
    )
  })

  test('needs the key that belongs to it, and a chain that holds', async () => {
    const [one, other] = await Promise.all([authority.issue(['a.example']), authority.issue(['b.example'])])
    expect(await uploads.send(one.cert, other.key)).toMatchObject(mistakeAt('/private_key_pem'))
    expect(await uploads.send(one.cert, 'no key')).toMatchObject(mistakeAt('/private_key_pem'))
    expect(await uploads.send('no certificate', one.key)).toMatchObject(mistakeAt('/certificate_pem'))
    expect(await uploads.send(`${one.cert}\n${other.cert}`, one.key)).toMatchObject(
      mistakeAt('/certificate_pem'),
    )
    expect(await uploads.send(`${one.cert}\n${authority.cert}`, one.key)).toMatchObject({ status: 201 })
  })

  test('is replaced together with its key', async () => {
    const id = await uploads.uploaded()
    const { cert, key } = await authority.issue(['new.example'], { key: 'ec' })
    expect(await ask('PUT', `/certificates/${id}`, { certificate_pem: cert })).toMatchObject({ status: 422 })
    expect(
      await ask('PUT', `/certificates/${id}`, { certificate_pem: cert, private_key_pem: key }),
    ).toMatchObject({ status: 200, body: { domains: ['new.example'] } })
  })
})

test('certificates and trusted authorities are limited for each tenant', async () => {
  const small = uploadsOf(await makeTenant({ max_certificates: 1 }), authority)
  const exceeded = { status: 409, body: { code: 'quota_exceeded', limit: 'max_certificates', allowed: 1 } }
  await small.uploaded()
  expect(await small.upload(['more.example'])).toMatchObject(exceeded)
  expect(await small.trust(authority.cert)).toMatchObject({ status: 201 })
  expect(await small.trust(authority.cert)).toMatchObject(exceeded)
})

describe('a CA trust', () => {
  test('is one or more authorities, and nothing else', async () => {
    const { cert } = await authority.issue(['a.example'])
    expect(await uploads.trust(authority.cert)).toMatchObject({
      status: 201,
      body: { subjects: ['CN=Test CA'] },
    })
    expect(await uploads.trust(cert)).toMatchObject(mistakeAt('/certificates_pem'))
    expect(await uploads.trust('-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----')).toMatchObject(
      mistakeAt('/certificates_pem'),
    )
  })
})

test('a certificate in use cannot be deleted', async () => {
  const id = await uploads.uploaded()
  const subnet_id = (await makeSubnet(tenant, (await makeVpc(tenant)).id)).id
  const listeners = [{ port: 443, protocol: 'https', certificate_ids: [id] }]
  const { body } = await ask('POST', '/load-balancers', { name: 'holder', subnet_id, listeners })
  expect(await ask('DELETE', `/certificates/${id}`)).toMatchObject({
    status: 409,
    body: { code: 'certificate_in_use' },
  })
  await (
    await tenant.owner.begin('DELETE', `/api/v1/load-balancers/${String(body['id'])}`)
  ).operation.success()
  await (await tenant.owner.begin('DELETE', `/api/v1/certificates/${id}`)).operation.success()
  expect(await tenant.owner.ask('GET', `/api/v1/certificates/${id}`)).toMatchObject({ status: 404 })
})
