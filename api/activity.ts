import { z } from 'zod'
import { Activity, type ActivityDocument } from '../models/activity.ts'
import type { Permission } from '../models/identity/roles.ts'
import { byId, Timestamp, time } from './fields.ts'
import { list } from './list.ts'
import type { Caller, Operation } from './operation.ts'

const ActivityView = z.strictObject({
  time: Timestamp,
  kind: z.string(),
  message: z.string(),
  data: z.record(z.string(), z.unknown()),
})

/** Lists the activity of one resource. `ownerOf` finds the resource or throws NotFound. */
export const activityList = ({
  ownerOf,
  ...of
}: {
  path: string
  permission: Permission
  summary: string
  ownerOf: (caller: Caller, id: string) => Promise<{ _id: string }>
}): Operation =>
  list({
    ...of,
    params: byId,
    model: Activity,
    view: ActivityView,
    toView: (event: ActivityDocument) => ({
      time: time(event.time),
      kind: event.kind,
      message: event.message,
      data: event.data,
    }),
    sortBy: 'time',
    scope: async (caller, { id }) => ({
      tenant_id: caller.tenant_id,
      resource_id: (await ownerOf(caller, id))._id,
    }),
  })
