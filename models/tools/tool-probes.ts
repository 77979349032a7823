import mongoose from 'mongoose'
import { newId } from '../../lib/ids.ts'
import type { ToolCommand, ToolFinding } from '../../lib/tool-protocol.ts'
import { NotFound } from '../../lib/problem.ts'
import { type By, create } from '../acceptance.ts'
import { microvmKind } from '../compute/microvms.ts'
import type { Accepted } from '../operations.ts'
import { defineResource, type ResourceDocument, resourceSchema } from '../resources.ts'
import { type StateOf, states } from '../states.ts'
import { everyTenant } from '../tenant-scope.ts'
import { opened } from './secrets.ts'
import { Tool, type ToolDocument } from './tools.ts'

// Probes of servers of stdio: each is an operation, with a microVM that lives for it alone.

const removable = { delete: 'deleting' } as const

export const toolProbeStates = states(
  {
    creating: {},
    /** The host has found something, also a fault of the server. */
    succeeded: removable,
    failed: removable,
    cancelled: removable,
    /** Its microVM may still be there. */
    error: removable,
  },
  { supersede: ['delete'], final: ['delete'] },
)

export interface ToolProbeDocument extends ResourceDocument<StateOf<typeof toolProbeStates>> {
  tool_id: string
  /** Of the tool as it is probed. */
  tool_version: number
  microvm_id: string | null
  /** A ToolFinding as JSON: the names in schemas may be operators of MongoDB. */
  finding_json: string | null
  /** Its result is of use to those who wait for it. */
  expires_at: Date
}

const schema = resourceSchema<ToolProbeDocument>(
  {
    tool_id: { type: String, required: true },
    tool_version: { type: Number, required: true },
    microvm_id: { type: String, default: null },
    finding_json: { type: String, default: null },
    expires_at: { type: Date, required: true },
  },
  toolProbeStates,
  'tool_probes',
  { within: 'tool_id' },
)
schema.index({ expires_at: 1 }, { expireAfterSeconds: 0 })
export const ToolProbe = mongoose.model<ToolProbeDocument>('ToolProbe', schema)
export const toolProbeResource = defineResource('tool_probe', ToolProbe, toolProbeStates, {
  title: 'probe of a tool',
})

const keptMs = 24 * 3_600_000

/** Accepts a probe of the tool as it is now, or finds the one that is under way. Returns their ids. */
export async function acceptToolProbe(
  by: By,
  { _id: tool_id, tenant_id, version, name }: ToolDocument,
): Promise<{ probe_id: string; operation_id: string }> {
  const open = await ToolProbe.findOne({
    tool_id,
    tenant_id,
    tool_version: version,
    operation_id: { $ne: null },
  }).lean()
  if (open?.operation_id) return { probe_id: open._id, operation_id: open.operation_id }
  const { document, operation }: Accepted<ToolProbeDocument> = await create(by, toolProbeResource, {
    fields: {
      name: `${name}-${newId().slice(-12)}`,
      tags: {},
      tool_id,
      tool_version: version,
      microvm_id: null,
      finding_json: null,
      expires_at: new Date(Date.now() + keptMs),
    },
  })
  return { probe_id: document._id, operation_id: operation._id }
}

/** The tool of a probe. Throws NotFound also if it has changed since. */
async function probed(id: string): Promise<{ probe: ToolProbeDocument; tool: ToolDocument }> {
  const probe = await ToolProbe.findById(id).setOptions(everyTenant).lean()
  const tool =
    probe &&
    (await Tool.findOne({
      _id: probe.tool_id,
      tenant_id: probe.tenant_id,
      version: probe.tool_version,
    }).lean())
  if (!probe || !tool) throw new NotFound('tool')
  return { probe, tool }
}

/** What the microVM of a probe is made with. `image`: the platform's, for a tool without its own. */
export async function microvmOfProbe(id: string, image: string): Promise<object> {
  const { tool } = await probed(id)
  return {
    name: `tool-probe-${id.slice(-12)}`,
    tags: { tool: tool._id },
    image: tool.image ?? image,
    // It only waits: the command gets an input and an output of its own.
    entrypoint: ['sh', '-c'],
    command: ['while :; do sleep 3600; done'],
    restart_policy: 'never',
    cpu_cores: 1,
    memory_mib: 512,
    root_disk_gib: 2,
    log_cap_mib: 1,
    config_vars: {},
    ports: [],
    health_check: null,
    start: true,
    host_id: null,
    nics: tool.subnet_id === null ? [] : [{ subnet_id: tool.subnet_id, ip_address: null }],
  }
}

/** Notes a probe's microVM, and returns its host. Throws NotFound. */
export async function placeOfProbe(id: string, microvm_id: string): Promise<string> {
  await ToolProbe.updateOne({ _id: id }, { $set: { microvm_id } }).setOptions(everyTenant)
  const microvm = await microvmKind.model.findById(microvm_id, { host_id: 1 }).setOptions(everyTenant).lean()
  if (!microvm?.host_id) throw new NotFound('microVM')
  return microvm.host_id
}

/** The command of a probe for the host of its microVM. Throws NotFound for any other host. */
export async function commandOfProbe(hostId: string, id: string): Promise<ToolCommand> {
  const { probe, tool } = await probed(id)
  const { microvm_id } = probe
  const isThere =
    microvm_id &&
    (await microvmKind.model.exists({ _id: microvm_id, host_id: hostId }).setOptions(everyTenant))
  if (!isThere || tool.command === null) throw new NotFound('probe')
  const { env } = await opened(tool)
  return { command: tool.command, args: tool.args, env }
}

export async function noteFinding(id: string, finding: ToolFinding): Promise<void> {
  await ToolProbe.updateOne({ _id: id }, { $set: { finding_json: JSON.stringify(finding) } }).setOptions(
    everyTenant,
  )
}
