import { ApplicationFailure } from '@temporalio/activity'
import { instanceKinds } from '../../models/compute/instance-kinds.ts'
import { Attachment } from '../../models/deploy/attachments.ts'
import {
  DeployServer,
  type DeployNode,
  type DeployServerDocument,
} from '../../models/deploy/deploy-servers.ts'
import { keepWorker } from '../../models/deploy/deploy-server-update.ts'
import { noteVolumesDiscarded } from '../../models/deploy/discarded-volumes.ts'
import { noteRegistryLost } from '../../models/deploy/image-copies.ts'
import { noteReplaced } from '../../models/deploy/lost-machines.ts'
import { type InstanceType, instanceTypeNames } from '../../models/deploy/instance-types.ts'
import { hostsOfMachines } from '../../models/deploy/machine-places.ts'
import { closeWorker } from '../../models/deploy/machine-replacement.ts'
import { dataFolder, type DeployMachineKind, providerOf } from '../../models/deploy/machine-providers.ts'
import { deleteManagedNetwork, makeManagedNetwork } from '../../models/deploy/networks.ts'
import { isRegistryNode, registryAddress, registryNodes } from '../../models/deploy/registries.ts'
import { LoadBalancer } from '../../models/network/load-balancers.ts'
import { Disk } from '../../models/storage/disks.ts'
import { everyTenant } from '../../models/tenant-scope.ts'
import { answering } from '../compute/answering.ts'
import { permanently } from '../failures.ts'

/** What `carryOut` needs to make one machine, and what is there of it. */
interface NodePlan {
  disk_id: string | null
  machine_id: string | null
  disk: object
  /** `at`: where its disk is mounted. */
  machine: { kind: DeployMachineKind; fields: object; at: { mount_path: string; read_only: boolean } }
}

/** Where a machine is, and how the others reach it. */
export interface MachinePlace {
  machine_id: string
  host_id: string
  ip_address: string
  /** How long its engine may take to answer after its start. */
  answers_within_sec: number
}

/** What is to be done until a deploy server is as its record says. */
export interface DeployPlan {
  /** What the machines are. */
  machine_kind: DeployMachineKind
  /** They take new sizes by a restart. */
  restarts: boolean
  lb_id: string | null
  /** Nodes that are wanted and not registered yet. */
  missing: string[]
  /** Workers to remove, the last one first. */
  extra: string[]
  /** Machines and disks of another size than wanted. */
  resize: {
    name: string
    machine_id: string
    instance_type: InstanceType
    size: { cpu_cores: number; memory_mib: number }
  }[]
  grow: { name: string; machine_id: string | null; disk_id: string; size_gib: number }[]
}

/** Beside its own system, the control plane has copies of the images that the worker that builds keeps. */
const controlPlaneDiskGib = ({ worker_disk_gib }: Pick<DeployServerDocument, 'worker_disk_gib'>): number =>
  4 + Math.ceil(worker_disk_gib / 2)

/** Activities of deploy servers: short reads and writes of MongoDB. */
export const makeDeployServerActivities = ({ machineImage }: { machineImage: string }) => ({
  /** Makes the VPC and the subnet, or finds them. Returns the fields of the load balancer to make. */
  async makeDeployNetwork(id: string): Promise<{ load_balancer: object }> {
    const server = await serverOf(id)
    const { vpc_id, subnet_id } = await makeManagedNetwork(server)
    await DeployServer.updateOne({ _id: id, tenant_id: server.tenant_id }, { $set: { vpc_id, subnet_id } })
    return { load_balancer: loadBalancerFields(server, subnet_id) }
  },

  removeDeployNetwork: async (id: string): Promise<void> => deleteManagedNetwork(await serverOf(id)),

  async noteLoadBalancer(id: string, lb_id: string | null): Promise<void> {
    await DeployServer.updateOne({ _id: id }, { $set: { lb_id } }).setOptions(everyTenant)
  },

  async noteInitStep(id: string, init_step: string): Promise<void> {
    await DeployServer.updateOne({ _id: id }, { $set: { init_step } }).setOptions(everyTenant)
  },

  /** Compares the machines that are there with those that are wanted. */
  async planDeployServer(id: string): Promise<DeployPlan> {
    const server = await serverOf(id)
    const names = ['cp', ...Array.from({ length: server.worker_count }, (_, index) => `w${index + 1}`)]
    const { machine_kind } = server
    const kept = server.nodes.filter(({ name }) => names.includes(name))
    return {
      machine_kind,
      restarts: providerOf(machine_kind).restarts,
      lb_id: server.lb_id,
      missing: names.filter((name) => !server.nodes.some((node) => node.name === name && isThere(node))),
      extra: server.nodes
        .map(({ name }) => name)
        .filter((name) => !names.includes(name))
        .toReversed(),
      resize: kept.flatMap(({ name, machine_id, instance_type }) => {
        const type = name === 'cp' ? server.app_instance_type : server.worker_instance_type
        return machine_id !== null && type !== instance_type
          ? [{ name, machine_id, instance_type: type, size: providerOf(machine_kind).sizeOf(type) }]
          : []
      }),
      grow: kept.flatMap(({ name, machine_id, disk_id, disk_gib }) => {
        const size_gib = name === 'cp' ? controlPlaneDiskGib(server) : server.worker_disk_gib
        return disk_id !== null && disk_gib < size_gib ? [{ name, machine_id, disk_id, size_gib }] : []
      }),
    }
  },

  /** Adds the node to the record, or finds it there. Returns the fields of its disk and its machine. */
  async planNode(id: string, name: string): Promise<NodePlan> {
    const server = await serverOf(id)
    const { tenant_id, nodes } = server
    const there = nodes.find((node) => node.name === name)
    const node = there ?? newNode(server, name)
    if (!there)
      await DeployServer.updateOne(
        { _id: id, tenant_id, 'nodes.name': { $ne: name } },
        { $push: { nodes: { $each: [node], $sort: { ip_address: 1 } } } },
      )
    return planOf(server, node, machineImage)
  },

  /** Records changes of a node. */
  noteNode: (id: string, name: string, changes: Partial<DeployNode>): Promise<void> =>
    changeNode(id, name, changes),

  /** Has nothing more placed on a worker. Throws `storage_on_worker`. */
  closeWorker: (id: string, name: string, discard_volumes: boolean): Promise<void> =>
    permanently(async () => closeWorker(await serverOf(id), { name, discard_volumes })),

  /** Records the sizes that a node's machine and disk have, after a change that was perhaps done and perhaps not. */
  async noteSizes(id: string, name: string): Promise<void> {
    const { tenant_id, machine_kind, nodes } = await serverOf(id)
    const node = nodes.find((one) => one.name === name)
    if (!node) return
    const its = (_id: string | null) => ({ _id, tenant_id })
    const size = { cpu_cores: 1, memory_mib: 1 }
    const [machine, disk] = await Promise.all([
      instanceKinds[machine_kind].model.findOne(its(node.machine_id), size).lean(),
      Disk.findOne(its(node.disk_id), { size_gib: 1 }).lean(),
    ])
    const type = instanceTypeNames.find((one) => {
      const { cpu_cores, memory_mib } = providerOf(machine_kind).sizeOf(one)
      return machine?.cpu_cores === cpu_cores && machine.memory_mib === memory_mib
    })
    await changeNode(id, name, {
      ...(type && { instance_type: type }),
      ...(disk && { disk_gib: disk.size_gib }),
    })
  },

  noteReplaced,

  keepWorker,

  /** Records that a machine and its disk are gone, with the registry that it may have had. */
  async emptyNode(id: string, name: string): Promise<void> {
    if (isRegistryNode(name)) await noteRegistryLost(id, name)
    await noteVolumesDiscarded(id, name)
    await changeNode(id, name, {
      machine_id: null,
      disk_id: null,
      registered: false,
      lost_at: null,
      resting: false,
      joins_when_back: false,
    })
  },

  /** Takes a node out of the record, once nothing of it is left. */
  async dropNode(id: string, name: string): Promise<void> {
    await DeployServer.updateOne({ _id: id }, { $pull: { nodes: { name } } }).setOptions(everyTenant)
  },

  /** The machines of a deploy server that are on a host, by the node's name. */
  placesOfNodes: (id: string): Promise<Record<string, MachinePlace>> => placesOf(id),

  /** The names of the workers whose hosts answer. */
  async workersThatAnswer(id: string): Promise<string[]> {
    const places = await placesOf(id)
    const workers = Object.entries(places).filter(([name]) => name !== 'cp')
    const hosts = await Promise.all(workers.map(([, { host_id }]) => answering(host_id)))
    return workers.flatMap(([name], index) => (hosts[index] ? [name] : []))
  },

  /** Also the kind of its machine. */
  async nodeAt(id: string, name: string): Promise<(DeployNode & { machine_kind: DeployMachineKind }) | null> {
    const { nodes, machine_kind } = await serverOf(id)
    const node = nodes.find((one) => one.name === name)
    return node ? { ...node, machine_kind } : null
  },

  /**
   * The ids of all that the deploy server manages, for its deletion: also what its record does not name, because a
   * killed operation has made it.
   */
  async partsOfDeployServer(id: string): Promise<{
    load_balancer: string[]
    container: string[]
    vm: string[]
    disk: string[]
    /** Of its databases to instances. */
    attachments: string[]
  }> {
    const { tenant_id } = await serverOf(id)
    const its = { tenant_id, managed_by: id }
    const [balancers, containers, vms, disks] = await Promise.all([
      LoadBalancer.find(its, { _id: 1 }).lean(),
      instanceKinds.container.model.find(its, { _id: 1 }).lean(),
      instanceKinds.vm.model.find(its, { _id: 1 }).lean(),
      Disk.find(its, { _id: 1 }).lean(),
    ])
    return {
      load_balancer: ids(balancers),
      container: ids(containers),
      vm: ids(vms),
      disk: ids(disks),
      attachments: await Attachment.distinct('_id', { tenant_id, deploy_server_id: id }),
    }
  },
})

/** One that joins when its host is back is not waited for. */
const isThere = ({ registered, machine_id, joins_when_back }: DeployNode): boolean =>
  registered || (machine_id !== null && joins_when_back === true)

export type DeployServerActivities = ReturnType<typeof makeDeployServerActivities>

async function changeNode(_id: string, name: string, changes: Partial<DeployNode>): Promise<void> {
  const set = Object.entries(changes).map(([field, value]) => [`nodes.$.${field}`, value] as const)
  await DeployServer.updateOne({ _id, 'nodes.name': name }, { $set: Object.fromEntries(set) }).setOptions(
    everyTenant,
  )
}

async function placesOf(id: string): Promise<Record<string, MachinePlace>> {
  const { nodes, machine_kind } = await serverOf(id)
  const { answers_within_sec } = providerOf(machine_kind)
  const hosts = await hostsOfMachines(nodes.flatMap(({ machine_id }) => machine_id ?? []))
  return Object.fromEntries(
    nodes.flatMap(({ name, machine_id, ip_address }) => {
      const host_id = hosts.get(machine_id ?? '')
      return machine_id && host_id ? [[name, { machine_id, host_id, ip_address, answers_within_sec }]] : []
    }),
  )
}

/** Throws `not_found`. */
async function serverOf(id: string): Promise<DeployServerDocument> {
  const server = await DeployServer.findById(id).setOptions(everyTenant).lean()
  if (!server) throw ApplicationFailure.nonRetryable('The deploy server no longer exists', 'not_found')
  return server
}

/** The control plane has the address .10, the worker N the address .(10 + N). */
function newNode(server: DeployServerDocument, name: string): DeployNode {
  const isControlPlane = name === 'cp'
  const number = isControlPlane ? 0 : Number(name.slice(1))
  return {
    name,
    ip_address: `10.77.0.${10 + number}`,
    instance_type: isControlPlane ? server.app_instance_type : server.worker_instance_type,
    disk_gib: isControlPlane ? controlPlaneDiskGib(server) : server.worker_disk_gib,
    machine_id: null,
    disk_id: null,
    registered: false,
    lost_at: null,
  }
}

function planOf(server: DeployServerDocument, node: DeployNode, container_image: string): NodePlan {
  const { _id: managed_by, subnet_id, machine_kind: kind } = server
  const { name, instance_type, ip_address } = node
  const tags = { 'keelson.role': name === 'cp' ? 'control-plane' : 'worker' }
  const provider = providerOf(kind)
  const nic = { subnet_id: subnet_id ?? '', ip_address }
  const registries = registryNodes.map(registryAddress)
  const order = { name, tags, managed_by, instance_type, nic, container_image, registries }
  const fields = provider.fieldsOf(order)
  return {
    disk_id: node.disk_id,
    machine_id: node.machine_id,
    disk: {
      name,
      tags,
      managed_by,
      size_gib: node.disk_gib,
      from_snapshot: null,
      host_id: null,
      for_kind: provider.placed_as,
      // On a host of its own, if there are several.
      apart_from: server.nodes.flatMap(({ disk_id }) => disk_id ?? []),
    },
    machine: { kind, fields, at: { mount_path: dataFolder, read_only: false } },
  }
}

const ids = (found: { _id: string }[]): string[] => found.map(({ _id }) => _id)

const loadBalancerFields = ({ _id: managed_by }: DeployServerDocument, subnet_id: string) => ({
  name: 'ingress',
  tags: {},
  managed_by,
  subnet_id,
  listeners: [{ port: 80, host_port: null, protocol: 'http', certificate_ids: [], redirect_to_https: false }],
  // The path and the expected status are those of each application's own check, by its deployment.
  health_check: {
    path: null,
    interval_sec: 1,
    timeout_sec: 1,
    healthy_after: 1,
    unhealthy_after: 3, // a busy machine may stand still for a second or two
    expect_status: null,
  },
  replicas: 1,
  log_cap_mib: 64,
})
