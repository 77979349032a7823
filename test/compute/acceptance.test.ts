import { beforeAll, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { acceptanceOf, type By } from '../../models/acceptance.ts'
import { acceptContainer, acceptContainerUpdate } from '../../models/compute/containers.ts'
import { acceptResume, acceptSuspend } from '../../models/compute/machines.ts'
import { acceptMicrovm, microvmKind } from '../../models/compute/microvms.ts'
import { Host } from '../../models/compute/hosts.ts'
import {
  heldBy,
  release,
  Reservation,
  reserve,
  reserveAlso,
  shrink,
} from '../../models/compute/reservations.ts'
import { AuditEvent } from '../../models/identity/audit.ts'
import { type Accepted, Operation } from '../../models/operations.ts'
import { engine } from '../support/engine.ts'
import { eventually } from '../support/eventually.ts'
import { insertHost } from '../support/inserted-hosts.ts'
import { newContainer as container, newInstance as instance } from '../support/new-instances.ts'
import { holdsNothing, makeTenant } from '../support/tenants.ts'

// Activities accept operations by the functions that HTTP requests use, without HTTP.

let by: By
let tenant: Awaited<ReturnType<typeof makeTenant>>
beforeAll(async () => {
  tenant = await makeTenant({ max_ram_gib: 1 })
  by = { tenant_id: tenant.id, id: null }
})

const success = async ({ operation: { _id, tenant_id } }: Accepted): Promise<void> => {
  const ended = await eventually(() => Operation.findOne({ _id, tenant_id, open: { $exists: false } }).lean())
  expect(ended).toMatchObject({ state: 'succeeded', error: null })
}
const eventsOf = (resource_id: string) =>
  AuditEvent.find({ tenant_id: tenant.id, resource_id }).sort({ time: 1 }).lean()

test('a container without an HTTP request runs, uses quota, keeps its name and lock, and is audited', async () => {
  const accepted = await acceptContainer(by, container('accepted'))
  const { _id: id } = accepted.document
  expect(accepted.document).toMatchObject({ status: 'creating', desired_state: 'running' })

  await expect(acceptContainer(by, container('accepted'))).rejects.toMatchObject({ code: 'name_taken' })
  const large = container('large', { memory_mib: 2048 })
  await expect(acceptContainer(by, large)).rejects.toMatchObject({ code: 'quota_exceeded' })
  const endless = acceptContainerUpdate(by, id, { command: ['x'.repeat(1024 ** 2)] })
  await expect(endless).rejects.toMatchObject({ code: 'too_large' }) // the API's fields have smaller bounds
  const stop = acceptanceOf('container', 'stop')
  const asked = { id, input: { grace_sec: 0 } }
  await expect(stop(by, asked)).rejects.toMatchObject({ code: 'operation_in_progress' })

  await success(accepted)
  expect(await engine.withLabel('keelson.resource', id)).toHaveLength(1)
  expect(await tenant.holds()).toMatchObject({ memory_mib: 32, reservations: 1 })

  const stopped = await stop(by, asked)
  await success(stopped)
  expect(await tenant.containers.get(id)).toMatchObject({ status: 'stopped', desired_state: 'stopped' })
  expect(await eventsOf(id)).toMatchObject([
    {
      action: 'create container',
      resource_kind: 'container',
      actor_id: 'platform',
      actor_kind: 'platform',
      path: `/api/v1/operations/${accepted.operation._id}`,
      status: 202,
      outcome: 'succeeded',
    },
    { action: 'stop container', path: `/api/v1/operations/${stopped.operation._id}` },
  ])

  await success(await acceptanceOf('container', 'delete')(by, { id }))
  expect(await tenant.holds()).toEqual(holdsNothing)
})

test('an operation that a user’s operation starts is audited as that user’s', async () => {
  const { id: userId, email } = await tenant.owner.get('/api/v1/account')
  const asked = { tenant_id: tenant.id, id: userId as string }
  const accepted = await acceptContainer(asked, container('of-a-user', { start: false }))
  expect(accepted.operation.requested_by).toBe(userId)
  expect(await eventsOf(accepted.document._id)).toMatchObject([
    { actor_id: userId, actor_kind: 'user', actor_name: email },
  ])
  const others = await acceptContainer({ ...asked, id: newId() }, container('of-nobody', { start: false }))
  expect(await eventsOf(others.document._id)).toMatchObject([{ actor_kind: 'platform' }])
})

test('a refused acceptance leaves no resource, quota or audit event', async () => {
  const before = await tenant.holds()
  const events = await AuditEvent.countDocuments({ tenant_id: tenant.id })
  const nics = [{ subnet_id: newId(), ip_address: null }]
  await expect(acceptContainer(by, container('no-subnet', { nics }))).rejects.toMatchObject({ status: 404 })
  expect(await tenant.holds()).toEqual(before)
  expect(await AuditEvent.countDocuments({ tenant_id: tenant.id })).toBe(events)
})

test('a microVM without an HTTP request is suspended and resumed', async () => {
  const spec = { ...instance, name: 'machine', cpu_cores: 1, memory_mib: 128, root_disk_gib: 1 }
  const created = await acceptMicrovm(by, spec)
  const { _id: id } = created.document
  await success(created)
  await success(await acceptSuspend(microvmKind, by, id))
  expect(await tenant.microvms.get(id)).toMatchObject({ status: 'suspended', desired_state: 'suspended' })
  await success(await acceptResume(microvmKind, by, id))
  expect(await tenant.microvms.get(id)).toMatchObject({ status: 'running', desired_state: 'running' })
  const actions = (await eventsOf(id)).map(({ action }) => action)
  expect(actions).toEqual(['create microvm', 'suspend microvm', 'resume microvm'])
})

test('a suspension that its host’s disk has no room for is refused, and changes nothing', async () => {
  const running = { cpu_milli: 1000, memory_mib: 64, disk_gib: 1 }
  const capacity = { cpu_cores: 1, memory_mib: 64, disk_gib: 3 }
  const { _id: host_id } = await insertHost({ capacity, reserved: running })
  const of = { tenant_id: tenant.id, name: 'large', host_id, transfer_sealed: '-', config_vars_sealed: '-' }
  const now = { status: 'running', desired_state: 'running', cpu_cores: 1, root_disk_gib: 1 } as const
  const { image, restart_policy, log_cap_mib } = instance
  const kept = { image, restart_policy, log_cap_mib, memory_mib: 2049 } // in a file of 3 GiB
  const { _id: id } = await new microvmKind.model({ ...of, ...now, ...kept }).save()
  await reserve(id, tenant.id, running)
  await Reservation.updateOne({ _id: id, tenant_id: tenant.id }, { $set: { host_id } })
  try {
    await expect(acceptSuspend(microvmKind, by, id)).rejects.toMatchObject({ code: 'no_capacity' })
    expect(await heldBy(id)).toMatchObject(running)
    expect(await microvmKind.model.findOne({ _id: id, tenant_id: tenant.id }).lean()).toMatchObject({
      ...now,
      operation_id: null,
    })
    // What a smaller one takes, and what is left of it when it is suspended.
    await reserveAlso(id, tenant.id, { cpu_milli: 0, memory_mib: 0, disk_gib: 3 })
    expect(await heldBy(id)).toMatchObject({ ...running, disk_gib: 3 })
    await shrink(id, tenant.id, { cpu_milli: 0, memory_mib: 0, disk_gib: 3 })
    expect((await Host.findById(host_id).lean())?.reserved).toEqual({
      cpu_milli: 0,
      memory_mib: 0,
      disk_gib: 3,
    })
  } finally {
    await microvmKind.model.deleteOne({ _id: id, tenant_id: tenant.id })
    await release(id)
  }
})
