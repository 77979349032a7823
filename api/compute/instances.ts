import { z } from 'zod'
import { NotFound } from '../../lib/problem.ts'
import { type InstanceDocument, type InstanceKind, takeInstanceNics } from '../../models/compute/instances.ts'
import { reserve } from '../../models/compute/reservations.ts'
import { claimDisks } from '../../models/storage/attachments.ts'
import { begin, type Shown } from '../accept.ts'
import { byId, Id, Name, Tags } from '../fields.ts'
import { list } from '../list.ts'
import { AskedNic } from '../network/fields.ts'
import { type Caller, type Operation, operation } from '../operation.ts'
import { DiskMount, maxDisks } from '../storage/mounts.ts'
import { mayChooseHost } from './hosts.ts'

// What every kind of instance takes, and the operations that each has: a kind gives its view, and gets them.

/** How a kind of instance is shown by the API. */
interface OwnShown<D extends InstanceDocument, V extends z.ZodObject> extends Shown<D, V> {
  kind: InstanceKind
  /** In paths and permissions. */
  plural: 'containers' | 'microvms' | 'vms'
  /** What a move does with what is in none of its disks. */
  staysBehind: string
  /** What its console is without a `command`: one that runs in it then, or its serial line. */
  console: { words: string; command: string[] }
  /** What becomes of a disk that comes or goes, where it is not mounted and unmounted. */
  disks?: { attach: string; detach: string }
  /** By which other names the record has fields of the view. */
  stored: Record<string, string>
}

/** The same as all that is common sees it. */
export type ShownInstance = OwnShown<InstanceDocument, z.ZodObject>
export const showInstance = <D extends InstanceDocument, V extends z.ZodObject>(
  own: OwnShown<D, V>,
): ShownInstance => own as unknown as ShownInstance

export const Arguments = z.array(z.string().max(4096)).max(256)
export const ConfigVars = z
  .record(z.string().regex(/^[A-Za-z_][A-Za-z0-9_]{0,127}$/), z.string().max(32_768))
  .refine((vars) => Object.keys(vars).length <= 200, 'at most 200 config vars')
export const Grace = z.int().min(0).max(600).default(10).describe('Seconds until it is killed')

/** What can be changed later. */
export const changeable = {
  image: z.string().regex(/^[\w][\w.\-/:@]{0,254}$/, 'must be an image reference'),
  command: Arguments,
  entrypoint: Arguments,
  restart_policy: z.enum(['always', 'on_failure', 'never']),
  log_cap_mib: z.int().min(1).max(1024),
  tags: Tags,
}

/** What is said once, when one is created. */
export const creatable = {
  name: Name,
  log_cap_mib: changeable.log_cap_mib.default(64),
  tags: Tags.default({}),
  config_vars: ConfigVars.default({}).describe('Environment variables'),
  disks: z.array(DiskMount).max(maxDisks).default([]).describe('It runs where they are'),
  host_id: Id.nullable().default(null).describe('For operators: the host to be on'),
  start: z.boolean().default(true),
  nics: z.array(AskedNic).max(8).default([]).describe('All in one VPC; the first has the default route'),
}

/** What a new instance's record begins with. */
export const newborn = (start: boolean, wanted_host_id: string | null) => ({
  image_digest: null,
  desired_state: start ? ('running' as const) : ('stopped' as const),
  host_id: null,
  wanted_host_id,
  nics: [],
  pending_changes: [],
  exit_code: null,
  restart_count: 0,
  started_at: null,
  runs_with: null,
})

/**
 * What a new instance takes in the transaction that accepts it: of its tenant's quota, its disks, its NICs. Returns what its
 * record has of that. Throws QuotaExceeded, NotFound, InvalidInput and the 409s of disks and subnets.
 */
export async function takeForNew(
  kind: InstanceKind,
  instance: InstanceDocument,
  { host_id, nics }: { host_id: string | null; nics: z.output<typeof AskedNic>[] },
): Promise<Partial<Pick<InstanceDocument, 'nics'>>> {
  await reserve(instance._id, instance.tenant_id, kind.sizeOf(instance))
  await claimDisks(kind, { ...instance, host_id }, instance.disks)
  return nics.length ? takeInstanceNics(kind, instance, nics) : {}
}

/** The caller's own. Throws NotFound. */
export async function instanceOf(
  { kind: { model, title } }: Pick<ShownInstance, 'kind'>,
  { tenant_id }: Caller,
  id: string,
): Promise<InstanceDocument> {
  const instance = await model.findOne({ _id: id, tenant_id }).lean()
  if (!instance) throw new NotFound(title)
  return { ...instance, disks: instance.disks ?? [] } // a record of before disks has none
}

/** To list, get, delete, start, stop and move it. Those to create and change it are the kind's own. */
export function instanceOperations(shown: ShownInstance) {
  const { plural, kind, view, toView, stored } = shown
  const { title } = kind
  const path = `/api/v1/${plural}`

  return {
    list: list({
      path,
      permission: `${plural}:read`,
      summary: `List ${title}s`,
      model: kind.model,
      view,
      toView,
      stored,
      scope: ({ tenant_id }) => ({ tenant_id }),
    }),

    get: operation({
      method: 'GET',
      path: `${path}/{id}`,
      permission: `${plural}:read`,
      summary: `Get a ${title}`,
      params: byId,
      responses: { 200: view },
      handle: async ({ caller, params }) => toView(await instanceOf(shown, caller, params.id)),
    }),

    delete: operation({
      method: 'DELETE',
      path: `${path}/{id}`,
      permission: `${plural}:delete`,
      summary: `Delete a ${title}, whatever is being done with it`,
      params: byId,
      responses: { 202: view },
      handle: ({ caller, params }) => begin(caller, shown, params.id, 'delete'),
    }),

    start: operation({
      method: 'POST',
      path: `${path}/{id}/start`,
      permission: `${plural}:update`,
      summary: `Start a stopped ${title}`,
      params: byId,
      responses: { 202: view },
      handle: ({ caller, params }) =>
        begin(caller, shown, params.id, 'start', {
          set: { desired_state: 'running' },
          reserve: (instance) => reserve(params.id, caller.tenant_id, kind.sizeOf(instance)),
        }),
    }),

    stop: operation({
      method: 'POST',
      path: `${path}/{id}/stop`,
      permission: `${plural}:update`,
      summary: `Stop a running ${title}; its addresses and data stay`,
      params: byId,
      body: z.strictObject({ grace_sec: Grace }).default({ grace_sec: 10 }),
      responses: { 202: view },
      handle: ({ caller, params, body }) =>
        begin(caller, shown, params.id, 'stop', {
          input: body,
          set: { desired_state: 'stopped' },
        }),
    }),

    reschedule: operation({
      method: 'POST',
      path: `${path}/{id}/reschedule`,
      permission: `${plural}:update`,
      summary: `Move a ${title} to another host; ${shown.staysBehind}`,
      params: byId,
      body: z
        .strictObject({
          host_id: Id.nullable().default(null).describe('For operators: the host to go to'),
          grace_sec: Grace,
        })
        .default({ host_id: null, grace_sec: 10 }),
      responses: { 202: view },
      handle: ({ caller, params, body }) => {
        mayChooseHost(caller, body.host_id)
        return begin(caller, shown, params.id, 'reschedule', { input: body })
      },
    }),
  } satisfies Record<string, Operation>
}
