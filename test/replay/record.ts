// Records the histories that test/operations/replay.unit.test.ts replays: `node test/replay/record.ts [STORY...]`, all
// or only those named, on the tests' stack (`script/test --keep` leaves it up). Record only new workflows. A change to
// an existing workflow must replay its old histories: use `patched`.
import { mkdir, rm, writeFile } from 'node:fs/promises'
import { historyToJSON } from '@temporalio/common/lib/proto-utils.js'
import { temporalClient } from '../../lib/temporal.ts'
import { containerResource } from '../../models/compute/containers.ts'
import { microvmKind } from '../../models/compute/microvms.ts'
import { vmKind } from '../../models/compute/vms.ts'
import { connectDatabase, disconnectDatabase } from '../../models/database.ts'
import '../../models/index.ts'
import { acceptVerb } from '../../models/operations.ts'
import type { Resource } from '../../models/resources.ts'
import { certificateSchedule } from '../../worker/schedules.ts'
import { type AcmeWorld, makeAcmeWorld } from '../support/acme.ts'
import { makeAuthority } from '../support/certificates.ts'
import { type Json, Operation, shell } from '../support/client.ts'
import { eventually } from '../support/eventually.ts'
import { decodedHistory } from '../support/histories.ts'
import { allHosts, closeFurther, open, whileFull } from '../support/hosts.ts'
import { outputOf } from '../support/microvms.ts'
import { platform } from '../support/platform.ts'
import { stackSettings } from '../support/stack.ts'
import { makeOperator, makeTenant, removeTenants } from '../support/tenants.ts'
import { makeSubnet, makeVpc, type Member } from '../support/vpcs.ts'

const folder = new URL('histories/', import.meta.url)

const settings = stackSettings()
await connectDatabase(settings)
const tenant = await makeTenant({ max_vpcs: 100 })
const { containers, microvms, vms, disks, owner } = tenant
// The image of a VM is made first.
const longMs = 900_000

interface Recordable {
  end(withinMs?: number): Promise<{ workflow_id: string; state: string }>
}

/** The operation of each story. Its history is stored under the story's name. */
const stories: Record<string, () => Promise<Recordable>> = {
  'createContainer.running': async () => (await containers.create()).operation,
  'createContainer.stopped': async () => (await containers.create({ start: false })).operation,
  'createContainer.failed': async () => (await containers.create({ command: ['false'] })).operation,
  'createContainer.cancelled': async () => {
    const { operation } = await whileHostIsAway(() => containers.create())
    await operation.cancel()
    await platform.start('host')
    return operation
  },
  'startContainer.running': async () => {
    const { id } = await containers.make({ start: false })
    return (await containers.start(id)).operation
  },
  'startContainer.failed': async () => {
    const { id } = await containers.make(shell('test ! -e /ran || exit 9; touch /ran; sleep 3600'))
    await (await containers.stop(id)).operation.success()
    return (await containers.start(id)).operation
  },
  'stopContainer.stopped': async () => (await containers.stop((await containers.make()).id)).operation,
  'updateContainer.running': async () => {
    const { id } = await containers.make()
    return (await containers.update(id, { memory_mib: 32, command: ['sleep', '7200'] })).operation
  },
  'updateContainer.stopped': async () => {
    const { id } = await containers.make({ start: false })
    return (await containers.update(id, { memory_mib: 32 })).operation
  },
  'repairContainer.running': async () => repaired(containerResource, (await containers.make()).id),
  'rescheduleContainer.running': async () => {
    const { id } = await containers.make()
    await open((await allHosts()).slice(1))
    return (await containers.reschedule(id)).operation
  },
  'rescheduleContainer.failed': async () => {
    const { id } = await containers.make()
    return (await containers.reschedule(id)).operation
  },
  'rescheduleContainer.disks': async () => {
    const { id } = await withDisk()
    await open((await allHosts()).slice(1))
    return (await containers.reschedule(id)).operation
  },
  'createContainer.disks': async () => {
    const { id: disk_id } = await disks.make()
    return (await containers.create({ disks: [{ disk_id, mount_path: '/data' }] })).operation
  },
  'attachDiskContainer.running': async () => {
    const { id } = await containers.make()
    return (await containers.attach(id, (await disks.make()).id)).operation
  },
  'attachDiskContainer.failed': async () => {
    const { id } = await containers.make()
    return (await containers.attach(id, (await disks.make()).id, '/etc/passwd')).operation
  },
  'detachDiskContainer.running': async () => {
    const { id, disk } = await withDisk()
    return (await containers.detach(id, disk)).operation
  },
  'createDisk.available': async () => (await disks.create()).operation,
  'createDisk.restored': async () => {
    const { id } = await disks.make()
    await (await disks.snapshot(id, 'kept')).operation.success()
    return (await disks.restore(id, 'kept')).operation
  },
  'updateDisk.available': async () =>
    (await disks.update((await disks.make()).id, { size_gib: 2 })).operation,
  'snapshotDisk.attached': async () => (await disks.snapshot((await withDisk()).disk, 'kept')).operation,
  'removeSnapshotDisk.available': async () => {
    const { id } = await disks.make()
    await (await disks.snapshot(id, 'kept')).operation.success()
    return (await disks.removeSnapshot(id, 'kept')).operation
  },
  'migrateDisk.available': async () => {
    const { id } = await disks.make()
    const further = (await allHosts()).slice(1)
    await open(further)
    return (await disks.migrate(id, further[0]?.id ?? '')).operation
  },
  'deleteDisk.deleted': async () => (await disks.delete((await disks.make()).id)).operation,
  'evacuateHost.active': async () => {
    const [, second] = await allHosts()
    const operator = await makeOperator()
    return (await operator.begin('POST', `/api/v1/platform/hosts/${second?.id}/evacuate`)).operation
  },
  'deleteContainer.deleted': async () => (await containers.delete((await containers.make()).id)).operation,
  'deleteContainer.superseding': async () => {
    const { id } = await whileHostIsAway(() => containers.create())
    const { operation } = await containers.delete(id)
    await platform.start('host')
    return operation
  },
  'deleteTenant.deleted': async () => {
    const { id, containers: its } = await makeTenant()
    await its.make({ start: false })
    const operator = await makeOperator()
    return (await operator.begin('DELETE', `/api/v1/platform/tenants/${id}`)).operation
  },
  'createContainer.nic': async () => (await containers.create(await withNic())).operation,
  'rescheduleContainer.nic': async () => {
    const { id } = await containers.make(await withNic())
    await open((await allHosts()).slice(1))
    return (await containers.reschedule(id)).operation
  },
  'deleteContainer.nic': async () =>
    (await containers.delete((await containers.make(await withNic())).id)).operation,
  'attachNicContainer.running': async () => {
    const { id } = await containers.make()
    return (await owner.begin('POST', `/api/v1/containers/${id}/nics`, await newNic())).operation
  },
  'attachNicContainer.cancelled': async () => {
    const { id } = await containers.make()
    const nic = await newNic()
    const { operation } = await whileHostIsAway(() =>
      owner.begin('POST', `/api/v1/containers/${id}/nics`, nic),
    )
    await operation.cancel()
    await platform.start('host')
    return operation
  },
  'detachNicContainer.running': async () => {
    const { id, nics } = (await containers.make(await withNic())) as Member
    return (await owner.begin('DELETE', `/api/v1/containers/${id}/nics/${nics[0]?.id}`)).operation
  },
  'createMicrovm.running': async () => (await microvms.create()).operation,
  'createMicrovm.failed': async () => (await microvms.create({ command: ['no-such-command'] })).operation,
  'startMicrovm.running': async () => {
    const { id } = await microvms.make({ start: false })
    return (await microvms.start(id)).operation
  },
  'stopMicrovm.stopped': async () => (await microvms.stop((await microvms.make()).id)).operation,
  'updateMicrovm.running': async () =>
    (await microvms.update((await microvms.make()).id, { memory_mib: 80 })).operation,
  'rebootMicrovm.running': async () => (await microvms.reboot((await microvms.make()).id)).operation,
  'suspendMicrovm.suspended': async () => (await microvms.suspend((await microvms.make()).id)).operation,
  'resumeMicrovm.running': async () => (await microvms.resume(await suspended())).operation,
  'resumeMicrovm.elsewhere': async () => {
    const id = await suspended()
    const [first, second] = await allHosts()
    if (!first || !second) throw new Error('it takes two hosts')
    await open([second])
    return whileFull(first, async () => {
      const { operation } = await microvms.resume(id)
      await operation.success(longMs)
      return operation
    })
  },
  'forkMicrovm.running': async () => (await microvms.fork(await suspended())).operation,
  'repairMicrovm.running': async () => repaired(microvmKind.resource, (await microvms.make()).id),
  'rescheduleMicrovm.running': async () => {
    const { id } = await microvms.make()
    await open((await allHosts()).slice(1))
    return (await microvms.reschedule(id)).operation
  },
  'rescheduleMicrovm.suspended': async () => {
    const id = await suspended()
    await open((await allHosts()).slice(1))
    return (await microvms.reschedule(id)).operation
  },
  'deleteMicrovm.deleted': async () => (await microvms.delete((await microvms.make()).id)).operation,
  'attachDiskMicrovm.running': async () => {
    const { id } = await microvms.make()
    return (await microvms.attach(id, (await disks.make()).id)).operation
  },
  'detachDiskMicrovm.running': async () => {
    const { id: disk_id } = await disks.make()
    const { id } = await microvms.make({ disks: [{ disk_id, mount_path: '/data' }] })
    return (await microvms.detach(id, disk_id)).operation
  },
  'attachNicMicrovm.running': async () => {
    const { id } = await microvms.make()
    return (await owner.begin('POST', `/api/v1/microvms/${id}/nics`, await newNic())).operation
  },
  'detachNicMicrovm.running': async () => {
    const { id, nics } = (await microvms.make(await withNic())) as Member
    return (await owner.begin('DELETE', `/api/v1/microvms/${id}/nics/${nics[0]?.id}`)).operation
  },
  'createVm.running': async () => (await vms.create()).operation,
  'updateVm.running': async () => (await vms.update(await runningVm(), { memory_mib: 600 })).operation,
  'rebootVm.running': async () => (await vms.reboot(await runningVm(), { grace_sec: 0 })).operation,
  'suspendVm.suspended': async () => (await vms.suspend(await runningVm())).operation,
  'resumeVm.running': async () => {
    const id = await runningVm()
    await (await vms.suspend(id)).operation.success()
    return (await vms.resume(id)).operation
  },
  'attachDiskVm.running': async () => {
    const id = await runningVm()
    return (await vms.attach(id, (await disks.make()).id)).operation
  },
  'detachDiskVm.running': async () => {
    const id = await runningVm()
    const { id: disk } = await disks.make()
    await (await vms.attach(id, disk, '/other')).operation.success()
    return (await vms.detach(id, disk)).operation
  },
  'attachNicVm.running': async () =>
    (await owner.begin('POST', `/api/v1/vms/${await runningVm()}/nics`, await newNic())).operation,
  'detachNicVm.running': async () => {
    const { id, nics } = (await vms.make(await withNic(), longMs)) as Member
    // A VM releases a NIC only when its system is up.
    await eventually(() => outputOf(tenant, id, 'echo up', 'vms'), { withinMs: longMs })
    return (await owner.begin('DELETE', `/api/v1/vms/${id}/nics/${nics[0]?.id}`)).operation
  },
  'repairVm.running': async () => repaired(vmKind.resource, await runningVm()),
  'stopVm.stopped': async () => (await vms.stop(await runningVm())).operation,
  'startVm.running': async () => {
    const id = await runningVm()
    await (await vms.stop(id)).operation.success()
    return (await vms.start(id)).operation
  },
  'rescheduleVm.running': async () => {
    const id = await runningVm()
    await open((await allHosts()).slice(1))
    return (await vms.reschedule(id)).operation
  },
  'deleteVm.deleted': async () => {
    const id = await runningVm()
    theVm = null
    return (await vms.delete(id)).operation
  },
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
  lookAfterCertificates: async () => {
    const schedule = temporal.schedule.getHandle(certificateSchedule)
    await schedule.trigger()
    const workflowId = await eventually(
      async () => (await schedule.describe()).info.recentActions.at(-1)?.action.workflow.workflowId,
    )
    return { end: () => Promise.resolve({ workflow_id: workflowId, state: 'succeeded' }) }
  },
  'deleteCertificate.deleted': async () => {
    const { cert, key } = await (await makeAuthority()).issue(['shop.example'])
    return deletionOf('certificates', { certificate_pem: cert, private_key_pem: key })
  },
  'deleteCaTrust.deleted': async () =>
    deletionOf('ca-trusts', { certificates_pem: (await makeAuthority()).cert }),
  'updateSubnet.available': async () => onSubnet('PUT', '', { nat: false }),
  'attachDhcpSubnet.available': async () => onSubnet('POST', '/dhcp-config', { domain_name: 'example' }),
  'detachDhcpSubnet.available': async () => onSubnet('DELETE', '/dhcp-config'),
  'deleteSubnet.deleted': async () =>
    (await owner.begin('DELETE', `/api/v1/subnets/${(await newNic()).subnet_id}`)).operation,
  'deleteVpc.deleted': async () =>
    (await owner.begin('DELETE', `/api/v1/vpcs/${(await makeVpc(tenant)).id}`)).operation,
  'rotateEncryptionKey.active': async () =>
    (await (await makeOperator()).begin('POST', '/api/v1/platform/encryption-key/rotate')).operation,
}

/** Repairs a resource as a host's report would. */
async function repaired(resource: Resource, id: string): Promise<Operation> {
  const request = { resource, tenantId: tenant.id, requestedBy: null, id, verb: 'repair' }
  const { operation } = await acceptVerb(request)
  return new Operation(tenant.owner, `/api/v1/operations/${operation._id}`)
}

let theVm: string | null = null
/** One VM for all stories: a dozen VMs that boot in parallel take minutes. */
async function runningVm(): Promise<string> {
  theVm ??= (await vms.make({}, longMs)).id
  const { status } = await vms.get(theVm)
  if (status === 'suspended') await (await vms.resume(theVm)).operation.success()
  if (status === 'stopped') await (await vms.start(theVm)).operation.success(longMs)
  return theVm
}

async function suspended(): Promise<string> {
  const { id } = await microvms.make()
  await (await microvms.suspend(id)).operation.success()
  return id
}

/** A running container with a disk. */
async function withDisk(): Promise<{ id: string; disk: string }> {
  const { id: disk } = await disks.make()
  const { id } = await containers.make({ disks: [{ disk_id: disk, mount_path: '/data' }] })
  return { id, disk }
}

/** A NIC in a new subnet. */
async function newNic(): Promise<{ subnet_id: string }> {
  const { id } = await makeVpc(tenant)
  return { subnet_id: (await makeSubnet(tenant, id)).id }
}
const withNic = async () => ({ nics: [await newNic()] })

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

/** Changes a subnet with a member. */
async function onSubnet(method: string, path: string, body?: Json): Promise<Operation> {
  const nic = await newNic()
  await containers.make({ nics: [nic] })
  return (await owner.begin(method, `/api/v1/subnets/${nic.subnet_id}${path}`, body)).operation
}

/** Begins an operation that an absent host blocks half-way. */
async function whileHostIsAway<T extends { operation: Operation }>(begin: () => Promise<T>): Promise<T> {
  await platform.kill('host')
  const begun = await begin()
  await eventually(async () => (await begun.operation.now()).state === 'running')
  return begun
}

/** Removes the identity of the recording machine, in every payload too. */
function anonymous(part: unknown): void {
  if (typeof part !== 'object' || part === null || part instanceof Uint8Array) return
  for (const [name, value] of Object.entries(part)) {
    if (name === 'stackTrace' || name === 'identity') Object.assign(part, { [name]: '' })
    else if (name === 'data' && value instanceof Uint8Array)
      Object.assign(part, { data: withoutTrace(value) })
    else anonymous(value)
  }
}

function withoutTrace(data: Uint8Array): Uint8Array {
  const text = Buffer.from(data).toString()
  if (!text.startsWith('{')) return data
  const value = JSON.parse(text, (key, inner: unknown) => (key === 'stack_trace' ? '' : inner)) as unknown
  return Buffer.from(JSON.stringify(value))
}

const temporal = temporalClient(settings)
const named = process.argv.slice(2)
if (named.length === 0) await rm(folder, { recursive: true, force: true })
await mkdir(folder, { recursive: true })
for (const [name, story] of Object.entries(stories)) {
  if (named.length > 0 && !named.includes(name)) continue
  const { workflow_id, state } = await (await story()).end(longMs)
  // The workflow closes some time after the operation.
  await temporal.workflow.getHandle(workflow_id).result()
  const history = await decodedHistory(temporal, workflow_id) // decoded, so that the replay needs no key
  anonymous(history)
  // One history is one line: thousands of lines would bury a review.
  await writeFile(new URL(`${name}.json`, folder), `${JSON.stringify(JSON.parse(historyToJSON(history)))}\n`)
  console.log(`${name}: ${state}, ${history.events.length} events`)
  await closeFurther()
}
await (theWorld as AcmeWorld | null)?.pebble.close()
await removeTenants()
await temporal.connection.close()
await disconnectDatabase()
process.exit() // the container engine's client keeps its sockets open
