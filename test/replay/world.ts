import { temporalClient } from '../../lib/temporal.ts'
import { connectDatabase } from '../../models/database.ts'
import '../../models/index.ts'
import { acceptVerb } from '../../models/operations.ts'
import type { Resource } from '../../models/resources.ts'
import { Operation } from '../support/client.ts'
import { eventually } from '../support/eventually.ts'
import { platform } from '../support/platform.ts'
import { stackSettings } from '../support/stack.ts'
import { makeTenant } from '../support/tenants.ts'
import { makeSubnet, makeVpc } from '../support/vpcs.ts'

// What the stories of all areas share.

interface Recordable {
  end(withinMs?: number): Promise<{ workflow_id: string; state: string }>
}

/** The operation of each story. Its history is stored under the story's name. */
export type Stories = Record<string, () => Promise<Recordable>>

const settings = stackSettings()
await connectDatabase(settings)
export const temporal = temporalClient(settings)
export const tenant = await makeTenant({ max_vpcs: 100 })
const { containers, disks } = tenant
// The image of a VM is made first.
export const longMs = 900_000

/** Repairs a resource as a host's report would. */
export async function repaired(resource: Resource, id: string): Promise<Operation> {
  const request = { resource, tenantId: tenant.id, requestedBy: null, id, verb: 'repair' }
  const { operation } = await acceptVerb(request)
  return new Operation(tenant.owner, `/api/v1/operations/${operation._id}`)
}

/** Has a schedule begin its workflow now. */
export async function looked(scheduleId: string): Promise<Recordable> {
  const schedule = temporal.schedule.getHandle(scheduleId)
  await schedule.trigger()
  const workflow_id = await eventually(
    async () => (await schedule.describe()).info.recentActions.at(-1)?.action.workflow.workflowId,
  )
  return { end: () => Promise.resolve({ workflow_id, state: 'succeeded' }) }
}

/** A running container with a disk. */
export async function withDisk(): Promise<{ id: string; disk: string }> {
  const { id: disk } = await disks.make()
  const { id } = await containers.make({ disks: [{ disk_id: disk, mount_path: '/data' }] })
  return { id, disk }
}

/** A NIC in a new subnet. */
export async function newNic(): Promise<{ subnet_id: string }> {
  const { id } = await makeVpc(tenant)
  return { subnet_id: (await makeSubnet(tenant, id)).id }
}
export const withNic = async () => ({ nics: [await newNic()] })

/** Begins an operation that an absent host blocks half-way. */
export async function whileHostIsAway<T extends { operation: Operation }>(
  begin: () => Promise<T>,
): Promise<T> {
  await platform.kill('host')
  const begun = await begin()
  await eventually(async () => (await begun.operation.now()).state === 'running')
  return begun
}
