import { NotFound } from '../../lib/problem.ts'
import { makeUsers } from '../uses.ts'
import { Tool, type ToolDocument } from './tools.ts'

const users = makeUsers<Pick<ToolDocument, '_id' | 'tenant_id'>>('tool')

/** Declares what uses tools (models/uses.ts). */
export const usesTools = users.declare

/** Throws InUse. Call in the transaction of the deletion, after a write to the tool. */
export const needUnused = users.needNone

/** Locks a tool that something new will use until the transaction ends: no deletion comes between. Throws NotFound. */
export async function holdTool(tenant_id: string, _id: string): Promise<void> {
  const held = await Tool.updateOne({ _id, tenant_id }, { $inc: { turns: 1 } }, { timestamps: false })
  if (!held.matchedCount) throw new NotFound('tool')
}
