import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { instanceKinds } from '../../models/compute/instance-kinds.ts'
import { RagStore } from '../../models/retrieval/stores.ts'
import { ragStoreOf, type StoreCredentials } from '../support/clients/rag-store.ts'
import { asRoot } from '../support/as-root.ts'
import type { ContainerBody } from '../support/client.ts'
import { engine } from '../support/engine.ts'
import { eventually } from '../support/eventually.ts'
import { inside, reaches } from '../support/members.ts'
import { holdsNothing, makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'
import { addressOf, makeMember, makeSubnet, makeVpc, type Member } from '../support/vpcs.ts'

// A tenant's store from the outside: where it is, who reaches it, and what is left of it.

let tenant: TestTenant
let subnet: { id: string }
beforeAll(async () => {
  tenant = await makeTenant()
  subnet = await makeSubnet(tenant, (await makeVpc(tenant)).id)
})
afterAll(removeTenants)

/** A member with Node: the store's own image runs anything. */
const caller = (of: TestTenant, subnet_id: string): Promise<Member> =>
  makeMember(of, subnet_id, { image: 'keelson/rag:1', command: ['sleep', '3600'], memory_mib: 128 })

/** What a request by HTTPS from inside a member is answered: the status, or why there is no answer. */
async function asks(
  from: ContainerBody,
  { endpoint, token, certificate_pem }: StoreCredentials,
  path = '/collections/none',
): Promise<string> {
  const request = { headers: { authorization: `Bearer ${token}` }, ca: certificate_pem, timeout: 3_000 }
  const script = `
    const asked = require('node:https').get(${JSON.stringify(endpoint + path)}, ${JSON.stringify(request)}, (answer) => {
      console.log(String(answer.statusCode)); answer.resume()
    })
    asked.on('timeout', () => asked.destroy(Object.assign(new Error('late'), { code: 'TIMEOUT' })))
    asked.on('error', (error) => console.log(error.code))`
  return inside(from, ['node', '-e', script])
}

const storeContainer = async (of: TestTenant): Promise<Member> => {
  const { id } = await ragStoreOf(of.owner).now()
  const { items } = await of.owner.get<{ items: Member[] }>(`/api/v1/containers?managed_by=${id}`)
  const [container] = items
  if (!container) throw new Error('the store has no container')
  return container
}

asRoot('the store of a tenant', () => {
  test('does not exist until it is enabled', async () => {
    const store = ragStoreOf(tenant.owner)
    expect(await store.now()).toMatchObject({ enabled: false, ready: false, endpoint: null })
    expect(await store.ask('disable')).toMatchObject({ status: 404 })
    expect(await store.ask('enable', { subnet_id: tenant.id })).toMatchObject({ status: 404 })
  })

  test('is ready in its subnet, where the tenant’s instances reach it with its token', async () => {
    const store = ragStoreOf(tenant.owner)
    const { operation } = await store.enable(subnet.id)
    await operation.success()
    expect(await store.now()).toMatchObject({
      enabled: true,
      ready: true,
      status: 'ready',
      status_reason: null,
      subnet_id: subnet.id,
      sizes: { collections: 0, documents: 0, chunks: 0, bytes: 0 },
    })
    const member = await caller(tenant, subnet.id)
    const credentials = await store.credentials()
    expect(await asks(member, credentials)).toBe('404') // no such collection
    expect(await asks(member, { ...credentials, token: 'x'.repeat(43) })).toBe('401')
    expect(await asks(member, { ...credentials, certificate_pem: '' })).toBe('DEPTH_ZERO_SELF_SIGNED_CERT')
  })

  test('is made once, and stays in its subnet', async () => {
    const store = ragStoreOf(tenant.owner)
    const size = { cpu_cores: 0.5, memory_mib: 512, size_gib: 1 }
    expect(await store.ask('enable', { subnet_id: subnet.id, ...size })).toMatchObject({ status: 200 })
    const vpc = await makeVpc(tenant, { cidr: '10.1.0.0/16' })
    const other = await makeSubnet(tenant, vpc.id, { cidr: '10.1.0.0/24' })
    expect(await store.ask('enable', { subnet_id: other.id, ...size })).toMatchObject({
      status: 409,
      body: { code: 'store_elsewhere', subnet_id: subnet.id },
    })
    expect(await tenant.owner.ask('DELETE', `/api/v1/subnets/${subnet.id}`)).toMatchObject({
      status: 409,
      body: { code: 'subnet_in_use' },
    })
  })

  test('is the platform’s to change, and its token is for those who may update', async () => {
    const { id } = await storeContainer(tenant)
    const { items } = await tenant.owner.get<{ items: { id: string }[] }>('/api/v1/containers')
    expect(items.map((one) => one.id)).not.toContain(id)
    for (const [method, path] of [
      ['POST', 'stop'],
      ['DELETE', ''],
    ] as const) {
      const answer = await tenant.owner.ask(method, `/api/v1/containers/${id}${path && `/${path}`}`)
      expect(answer).toMatchObject({ status: 409, body: { code: 'managed' } })
    }
    expect(await tenant.owner.get(`/api/v1/containers/${id}/config-vars`)).toEqual({ config_vars: {} })
    const viewer = await tenant.user('viewer')
    expect(await viewer.ask('GET', '/api/v1/rag')).toMatchObject({ status: 200 })
    expect(await viewer.ask('GET', '/api/v1/rag/credentials')).toMatchObject({ status: 403 })
  })

  test('is out of reach of another tenant, whose token and subnet are others', async () => {
    const other = await makeTenant()
    const vpc = await makeVpc(other, { cidr: '10.9.0.0/16' })
    const theirs = await makeSubnet(other, vpc.id, { cidr: '10.9.0.0/24' })
    const stranger = await caller(other, theirs.id)
    const credentials = await ragStoreOf(tenant.owner).credentials()
    const address = addressOf(await storeContainer(tenant))
    expect(await asks(stranger, credentials)).toMatch(/ENOTFOUND|EAI_AGAIN/)
    // The leaked token, at the address itself.
    expect(await asks(stranger, { ...credentials, endpoint: `https://${address}:8700` })).not.toMatch(/^\d+$/)
    expect(await reaches(stranger, [address])).toEqual([])
    expect(await ragStoreOf(other.owner).now()).toMatchObject({ enabled: false })
  })

  test('has another token and certificate after one call', async () => {
    const store = ragStoreOf(tenant.owner)
    const member = await caller(tenant, subnet.id)
    const former = await store.credentials()
    await (await store.rotate()).operation.success()
    const present = await store.credentials()
    expect(present.token).not.toBe(former.token)
    expect(await asks(member, present)).toBe('404')
    expect(await asks(member, { ...present, token: former.token })).toBe('401')
    expect(await store.now()).toMatchObject({ ready: true })
  })

  test('comes back by itself when its process is killed', async () => {
    const store = ragStoreOf(tenant.owner)
    await engine.kill((await storeContainer(tenant)).id)
    await eventually(
      async () => !(await store.now()).ready || (await storeContainer(tenant)).status !== 'running',
    )
    await eventually(async () => (await store.now()).ready)
  })

  test('is made anew in one container, whatever an operation that failed has left', async () => {
    const store = ragStoreOf(tenant.owner)
    const { id: left } = await storeContainer(tenant)
    // As after a restore that could not go back.
    await RagStore.updateOne({ tenant_id: tenant.id }, { $set: { status: 'error', container_id: null } })
    await (await store.enable(subnet.id)).operation.success()
    expect(await store.now()).toMatchObject({ status: 'ready', ready: true })
    expect((await storeContainer(tenant)).id).not.toBe(left)
    expect(await engine.withLabel('keelson.resource', left)).toEqual([])
  })

  test('leaves nothing when it is disabled', async () => {
    const store = ragStoreOf(tenant.owner)
    const { id } = await storeContainer(tenant)
    await (await store.disable()).operation.success()
    expect(await store.now()).toMatchObject({ enabled: false, ready: false })
    expect(await engine.withLabel('keelson.resource', id)).toEqual([])
    expect(
      await instanceKinds.container.model.countDocuments({ tenant_id: tenant.id, managed_by: { $ne: null } }),
    ).toBe(0)
    expect(await tenant.storage()).toEqual({ disk_gib: 0, reservations: 0 })
    const { items } = await tenant.owner.get<{ items: { id: string }[] }>('/api/v1/containers')
    for (const one of items) await (await tenant.containers.delete(one.id)).operation.success()
    expect(await tenant.holds()).toEqual(holdsNothing)
  })
})
