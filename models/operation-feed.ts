import type { ProblemDocument } from '../lib/problem.ts'
import { noteActivity, noteFirst } from './activity.ts'
import { resourceOf } from './resources.ts'

interface Ended {
  _id: string
  tenant_id: string
  resource_id: string
  resource_kind: string
  verb: string
  /** Without a status: the operation created the resource. */
  before: { status?: string }
}

type Ending =
  | { state: 'succeeded'; status?: string }
  | { state: 'failed' | 'cancelled'; error: ProblemDocument }

/**
 * Tells the activity feed of a resource that it was created, or that an operation on it failed. Runs in the transaction that
 * ends the operation, so it is told once. A cancel is no news: somebody asked for it.
 */
export async function noteEnd(operation: Ended, ending: Ending): Promise<void> {
  const { _id: operation_id, tenant_id, resource_id, resource_kind, verb, before } = operation
  const { title, feed } = resourceOf(resource_kind)
  const of = { tenant_id, resource_id }
  if (ending.state === 'succeeded') {
    if (before.status !== undefined || !feed.includes('created')) return
    const message = `The ${title} was created: it is ${ending.status}`
    await noteFirst({ ...of, kind: 'created', message, data: { operation_id } })
  }
  if (ending.state === 'failed' && feed.includes('failed')) {
    const { code, detail, title: reason } = ending.error
    const message = `The operation ${verb} failed: ${detail ?? reason}`
    await noteActivity({ ...of, kind: 'failed', message, data: { verb, code, operation_id } })
  }
}
