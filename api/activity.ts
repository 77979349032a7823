import { z } from 'zod'
import { Activity, type ActivityDocument } from '../models/activity.ts'
import type { Permission } from '../models/identity/roles.ts'
import { byId, Timestamp, time } from './fields.ts'
import { list } from './list.ts'
import type { Caller, Operation } from './operation.ts'

const ActivityView = z.strictObject({
  time: Timestamp.describe('The time of the event; of the last one, if the entry stands for several'),
  first_time: Timestamp,
  count: z.int().min(1).describe('How many equal events in a row the entry stands for'),
  kind: z.string(),
  message: z.string(),
  data: z.record(z.string(), z.unknown()),
})

interface Feed {
  path: string
  permission: Permission
  summary: string
}

/** Lists the activity of one resource. `ownerOf` finds the resource or throws NotFound. */
export const activityList = ({
  ownerOf,
  ...of
}: Feed & { ownerOf: (caller: Caller, id: string) => Promise<{ _id: string }> }): Operation =>
  activityFeed({
    ...of,
    params: byId,
    scope: async (caller, { id }) => ({ resource_id: (await ownerOf(caller, id))._id }),
  })

/** Lists the tenant's activity within the scope. */
export const activityFeed = <P extends z.ZodType>({
  scope,
  ...of
}: Feed & {
  params: P
  scope: (caller: Caller, params: z.output<P>) => Promise<Record<string, unknown>>
}): Operation =>
  list<ActivityDocument, typeof ActivityView, z.ZodType>({
    ...of,
    model: Activity,
    view: ActivityView,
    toView: (event) => ({
      time: time(event.time),
      first_time: time(event.first_time),
      count: event.count,
      kind: event.kind,
      message: event.message,
      data: event.data,
    }),
    sortBy: 'time',
    scope: async (caller, params) => ({
      ...(await scope(caller, params as z.output<P>)),
      tenant_id: caller.tenant_id,
    }),
  })
