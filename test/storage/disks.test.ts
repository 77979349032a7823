import { beforeAll, describe, expect, test } from '@jest/globals'
import mongoose from 'mongoose'
import { newId } from '../../lib/ids.ts'
import { eventually } from '../support/eventually.ts'
import { tracesOf } from '../support/disk-traces.ts'
import { makeOperator, makeTenant, type TestTenant } from '../support/tenants.ts'

// Each operation on a disk, and its refusals.

let tenant: TestTenant
beforeAll(async () => {
  tenant = await makeTenant()
})

const path = '/api/v1/disks'
const refused = (status: number, code: string, more: object = {}) => ({ status, body: { code, ...more } })

describe('create', () => {
  test('answers at once with the host, which has one disk in the end', async () => {
    const { id, body, operation } = await tenant.disks.create({ size_gib: 2, tags: { a: 'b' } })
    expect(body).toMatchObject({
      status: 'creating',
      operation_id: operation.id,
      host_id: expect.any(String),
    })
    expect(await operation.end()).toMatchObject({ state: 'succeeded', resource_kind: 'disk', verb: 'create' })
    expect(await tenant.disks.get(id)).toMatchObject({
      status: 'available',
      status_reason: null,
      size_gib: 2,
      attached_to: null,
      condition: 'sound',
      tags: { a: 'b' },
    })
  })

  test('uses quota, which a deletion frees', async () => {
    const small = await makeTenant({ max_storage_gib: 5 })
    const { id } = await small.disks.make({ size_gib: 4 })
    expect(await small.storage()).toEqual({ disk_gib: 4, reservations: 1 })
    const answer = await small.owner.ask('POST', path, { name: 'more', size_gib: 2 })
    expect(answer).toMatchObject(
      refused(409, 'quota_exceeded', { limit: 'max_storage_gib', allowed: 5, used: 4, asked: 2 }),
    )
    await (await small.disks.delete(id)).operation.success()
    expect(await small.storage()).toEqual({ disk_gib: 0, reservations: 0 })
    expect(await small.owner.ask('GET', `${path}/${id}`)).toMatchObject({ status: 404 })
  })

  test('refuses what no host has room for, before it writes or reserves anything', async () => {
    const large = await makeTenant({ max_storage_gib: 100_000 })
    const answer = await large.owner.ask('POST', path, { name: 'large', size_gib: 60_000 })
    expect(answer).toMatchObject(refused(409, 'no_capacity'))
    expect(answer.body['detail']).toMatch(/^No host has 60000 GiB of disk free/)
    expect(await large.storage()).toEqual({ disk_gib: 0, reservations: 0 })
    expect(await large.owner.get(path)).toMatchObject({ total: 0 })
  })

  test('refuses a taken name, a size of zero, and a choice of host', async () => {
    const { id, name } = await tenant.disks.make()
    const ask = (body: object) => tenant.owner.ask('POST', path, body)
    const move = await tenant.owner.ask('POST', `${path}/${id}/migrate`, { target_host_id: newId() })
    expect(move).toMatchObject(refused(403, 'permission_denied', { permission: 'platform:hosts' }))
    expect(await ask({ name, size_gib: 1 })).toMatchObject(refused(409, 'name_taken'))
    expect(await ask({ name: 'x', size_gib: 0 })).toMatchObject(refused(422, 'invalid_input'))
    expect(await ask({ name: 'x' })).toMatchObject(refused(422, 'invalid_input'))
    expect(await ask({ name: 'x', size_gib: 1, host_id: newId() })).toMatchObject(
      refused(403, 'permission_denied'),
    )
  })
})

describe('update', () => {
  test('grows a disk, and never shrinks one', async () => {
    const { id } = await tenant.disks.make()
    await (await tenant.disks.update(id, { size_gib: 3, tags: { c: 'd' } })).operation.success()
    expect(await tenant.disks.get(id)).toMatchObject({ size_gib: 3, tags: { c: 'd' }, status: 'available' })
    const smaller = await tenant.owner.ask('PUT', `${path}/${id}`, { size_gib: 2 })
    expect(smaller).toMatchObject(refused(422, 'invalid_input', { errors: [{ pointer: '/size_gib' }] }))
    expect(await tenant.disks.get(id)).toMatchObject({ size_gib: 3, status: 'available', operation_id: null })
  })

  test('refuses a size beyond the tenant’s quota or the host’s space', async () => {
    const small = await makeTenant({ max_storage_gib: 2 })
    const { id } = await small.disks.make()
    expect(await small.owner.ask('PUT', `${path}/${id}`, { size_gib: 3 })).toMatchObject(
      refused(409, 'quota_exceeded'),
    )
    const large = await makeTenant({ max_storage_gib: 100_000 })
    const other = await large.disks.make()
    const answer = await large.owner.ask('PUT', `${path}/${other.id}`, { size_gib: 60_000 })
    expect(answer).toMatchObject(refused(409, 'no_capacity'))
    expect(await large.storage()).toEqual({ disk_gib: 1, reservations: 1 })
  })
})

describe('delete', () => {
  test('is refused while a container has the disk, and leaves nothing on the machine', async () => {
    const { id } = await tenant.disks.make()
    const container = await tenant.containers.make({ disks: [{ disk_id: id, mount_path: '/data' }] })
    expect(await tenant.owner.ask('DELETE', `${path}/${id}`)).toMatchObject(
      refused(409, 'state_conflict', { state: 'attached' }),
    )
    await (await tenant.containers.delete(container.id)).operation.success()
    expect(await tenant.disks.get(id)).toMatchObject({ status: 'available', attached_to: null })
    await (await tenant.disks.delete(id)).operation.success()
    expect(await tracesOf(id)).toEqual([])
  })

  test('cancels a create under way', async () => {
    const { id } = await tenant.disks.create()
    await (await tenant.disks.delete(id)).operation.success()
    expect(await tenant.owner.ask('GET', `${path}/${id}`)).toMatchObject({ status: 404 })
    expect(await tracesOf(id)).toEqual([])
  })
})

test('deleting a tenant deletes its attached disks too', async () => {
  const gone = await makeTenant()
  const { id } = await gone.disks.make()
  await (await gone.disks.snapshot(id, 'kept')).operation.success()
  await gone.containers.make({ disks: [{ disk_id: id, mount_path: '/data' }] })
  const operator = await makeOperator()
  await (await operator.begin('DELETE', `/api/v1/platform/tenants/${gone.id}`)).operation.success()
  await eventually(async () => (await tracesOf(id)).length === 0)
  for (const name of ['disks', 'disk_snapshots', 'reservations'])
    expect(await mongoose.connection.collection(name).countDocuments({ tenant_id: gone.id })).toBe(0)
})
