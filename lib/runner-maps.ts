import { z } from 'zod'
import { bounds } from './ai/bounds.ts'
import { Given } from './runner-protocol.ts'

// Maps of AI workflows, between runners and the internal API.

const ItemIndex = z
  .int()
  .min(0)
  .max(bounds.mapItems - 1)
const Fault = z.strictObject({ code: z.string().max(100), message: z.string().max(2_000) })
export type Fault = z.infer<typeof Fault>

/** What a map's attempt finds: how far the attempts before it have come, and what `do` names. */
export const OpenedMap = z.object({
  ...Given.shape,
  /** Items that have ended. */
  ended: z.array(ItemIndex),
  /** Those of them that failed, and have no other value. */
  failed: z.array(z.object({ item: ItemIndex, ...Fault.shape })),
  /** Items that had begun, with their last attempts. */
  begun: z.array(z.object({ item: ItemIndex, attempt: z.int() })),
})
export type OpenedMap = z.infer<typeof OpenedMap>

/** How an item ended. `attempt`: null if its attempts are not counted, since it only evaluates expressions. */
export const ItemEnd = z.discriminatedUnion('status', [
  z.strictObject({
    item: ItemIndex,
    attempt: z.int().min(1).nullable(),
    status: z.literal('succeeded'),
    output: z.string(),
  }),
  z.strictObject({
    item: ItemIndex,
    attempt: z.int().min(1).nullable(),
    status: z.literal('failed'),
    error: Fault,
  }),
])
export type ItemEnd = z.infer<typeof ItemEnd>

/** Items in one request, and the bytes of their outputs together, beyond the first. */
export const itemBatch = { items: 100, bytes: 4 * 1024 ** 2 } as const
export const ItemEnds = z.strictObject({ ends: z.array(ItemEnd).min(1).max(itemBatch.items) })

/** The input of a run that a node, or an item, of kind `workflow` starts: JSON. */
export const WorkflowCall = z.strictObject({ input: z.string() })

/** The answer to such a call. */
export const Called = z.discriminatedUnion('state', [
  z.object({
    state: z.literal('accepted'),
    run: z.object({ _id: z.string(), tenant_id: z.string(), workflow_id: z.string(), version: z.int() }),
  }),
  /** The node, or the item, has ended. */
  z.object({ state: z.literal('done') }),
  z.object({ state: z.literal('refused'), ...Fault.shape }),
])
export type Called = z.infer<typeof Called>
