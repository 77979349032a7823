import { z } from 'zod'
import { faultOfVars } from '../../lib/config-vars.ts'
import { acceptReschedule, acceptStart, acceptStop } from '../../models/compute/instance-acceptance.ts'
import { type InstanceDocument, type InstanceKind, maxDisks } from '../../models/compute/instances.ts'
import { accepting } from '../accept.ts'
import { byId, commonView, Id, Name, resourceView, Tags, Timestamp, timeOrNull } from '../fields.ts'
import { AskedNic, NicView } from '../network/fields.ts'
import { type Operation, operation } from '../operation.ts'
import { resourceOperations, type ShownResource } from '../resources.ts'
import { DiskMount, MountView } from '../storage/mounts.ts'
import { mayChooseHost } from './hosts.ts'

// The fields and operations that all kinds of instances share. Each kind supplies its view.

/** A kind of instance with its view and texts in the API. */
export interface ShownInstance<
  D extends InstanceDocument = InstanceDocument,
  V extends z.ZodObject = z.ZodObject,
> extends ShownResource<D, V> {
  kind: InstanceKind
  plural: 'containers' | 'microvms' | 'vms'
  /** What a move does with data outside the disks, for the summary. */
  staysBehind: string
  /** The console's summary, and its default command; an empty command means the serial console. */
  console: { words: string; command: string[] }
  /** The summaries of attaching and detaching a disk, if they differ from the usual ones. */
  disks?: { attach: string; detach: string }
}

/** The part of `ShownInstance` that follows from the kind. */
export const shownAs = (kind: InstanceKind) => ({
  kind,
  resource: kind.resource,
  deletion: `Delete a ${kind.title}, even during another operation`,
  without: ['config_vars_sealed', 'user_data_sealed'],
})

const mostArgumentsBytes = 64 * 1024
const bytesOf = (value: unknown): number => Buffer.byteLength(JSON.stringify(value))

// Bounds of the whole, too: lists have up to 100 of them in memory.
export const Arguments = z
  .array(z.string().max(4096))
  .max(256)
  .refine((words) => bytesOf(words) <= mostArgumentsBytes, 'must have at most 64 KiB together')
export const ConfigVarName = z.string().regex(/^[A-Za-z_][A-Za-z0-9_]{0,127}$/)
export const ConfigVars = z.record(ConfigVarName, z.string().max(32_768)).superRefine((vars, context) => {
  const message = faultOfVars(vars)
  if (message !== null) context.addIssue({ code: 'custom', message, input: vars })
})
export const Grace = z
  .int()
  .min(0)
  .max(600)
  .default(10)
  .describe('Seconds to wait before the instance is killed')

/** The fields that an update can change. */
export const changeable = {
  image: z.string().regex(/^[\w][\w.\-/:@]{0,254}$/, 'must be an image reference'),
  command: Arguments,
  entrypoint: Arguments,
  restart_policy: z.enum(['always', 'on_failure', 'never']),
  log_cap_mib: z.int().min(1).max(1024),
  tags: Tags,
}

/** The fields of a creation that all kinds share, with defaults. */
export const creatable = {
  name: Name,
  log_cap_mib: changeable.log_cap_mib.default(64),
  tags: Tags.default({}),
  config_vars: ConfigVars.default({}).describe('Environment variables'),
  disks: z
    .array(DiskMount)
    .max(maxDisks)
    .default([])
    .describe('The instance runs on the host that has its disks'),
  host_id: Id.nullable().default(null).describe('Operators only: the host to run on'),
  start: z.boolean().default(true),
  nics: z
    .array(AskedNic)
    .max(8)
    .default([])
    .describe('All in one VPC; the default route goes through the first'),
}

/** The fields of every instance's view. */
export const instanceView = {
  ...resourceView,
  status_reason: resourceView.status_reason.describe(
    'Why the last operation failed. `crash_looping: …`: the instance ends again and again, the last time with this exit code if there is one, and is restarted after longer and longer pauses. `waits_for_room: …`: the disk of its host is full, and the instance is paused until there is room',
  ),
  image: z.string(),
  image_digest: z.string().nullable(),
  memory_mib: z.int(),
  nics: z.array(NicView),
  log_cap_mib: z.int(),
  disks: z.array(MountView),
  host_id: Id.nullable(),
  pending_changes: z.array(z.string()).describe('Fields whose new values take effect at the next start'),
  exit_code: z.int().nullable(),
  restart_count: z.int(),
  started_at: Timestamp.nullable(),
}

/** The fields of `instanceView` for one instance. */
export const toInstanceView = <State extends string>(instance: InstanceDocument<State>) => ({
  ...commonView(instance),
  image: instance.image,
  image_digest: instance.image_digest,
  memory_mib: instance.memory_mib,
  nics: instance.nics,
  log_cap_mib: instance.log_cap_mib,
  disks: instance.disks,
  host_id: instance.host_id,
  pending_changes: instance.pending_changes,
  exit_code: instance.exit_code,
  restart_count: instance.restart_count,
  started_at: timeOrNull(instance.started_at),
})

/** The operations that all kinds share. Each kind declares create and update itself. */
export function instanceOperations(shown: ShownInstance) {
  const { plural, kind, view, toView } = shown
  const { title } = kind
  const path = `/api/v1/${plural}`

  return {
    ...resourceOperations(shown),

    start: operation({
      method: 'POST',
      path: `${path}/{id}/start`,
      permission: `${plural}:update`,
      summary: `Start a stopped ${title}`,
      params: byId,
      responses: { 202: view },
      handle: ({ caller, params }) => accepting(caller, toView, (by) => acceptStart(kind, by, params.id)),
    }),

    stop: operation({
      method: 'POST',
      path: `${path}/{id}/stop`,
      permission: `${plural}:update`,
      summary: `Stop a running ${title}; it keeps its addresses and data`,
      params: byId,
      body: z.strictObject({ grace_sec: Grace }).default({ grace_sec: 10 }),
      responses: { 202: view },
      handle: ({ caller, params, body }) =>
        accepting(caller, toView, (by) => acceptStop(kind, by, params.id, body)),
    }),

    reschedule: operation({
      method: 'POST',
      path: `${path}/{id}/reschedule`,
      permission: `${plural}:update`,
      summary: `Move a ${title} to another host; ${shown.staysBehind}`,
      params: byId,
      body: z
        .strictObject({
          host_id: Id.nullable().default(null).describe('Operators only: the host to move to'),
          grace_sec: Grace,
        })
        .default({ host_id: null, grace_sec: 10 }),
      responses: { 202: view },
      handle: ({ caller, params, body }) => {
        mayChooseHost(caller, body.host_id)
        return accepting(caller, toView, (by) => acceptReschedule(kind, by, params.id, body))
      },
    }),
  } satisfies Record<string, Operation>
}
