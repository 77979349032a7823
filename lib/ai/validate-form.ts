import type { z } from 'zod'
import { bounds, isDeeperThan } from './bounds.ts'
import { canonicalJson, NotCanonical } from './canonical.ts'
import type { Code, Findings } from './findings.ts'
import { NodeSpec } from './node-kinds.ts'
import { Spec } from './spec.ts'
import { pointerTo } from './templates.ts'

/** What of a draft has the right form. A node that has not is null: it is there, and nothing is known of it. */
export interface Draft {
  spec: Partial<Omit<Spec, 'nodes'>>
  nodes: Record<string, NodeSpec | null>
}

/** Adds the errors of form. Null if the draft is too large to look further, or no object. */
export function checkForm(draft: unknown, findings: Findings): Draft | null {
  const fault = draftFault(draft)
  if (fault) findings.add(null, '', ...fault)
  if (fault || !isRecord(draft)) return null
  const parsed = Spec.safeParse(draft)
  if (parsed.success) return { spec: parsed.data, nodes: parsed.data.nodes }
  for (const issue of parsed.error.issues) addIssue(issue, findings)
  const nodes = isRecord(draft['nodes']) ? Object.entries(draft['nodes']).slice(0, bounds.nodes) : []
  return {
    spec: Object.fromEntries(
      Object.entries(Spec.shape).flatMap(([name, field]) => {
        const one = name === 'nodes' ? null : field.safeParse(draft[name])
        return one?.success ? [[name, one.data]] : []
      }),
    ),
    nodes: Object.fromEntries(nodes.map(([name, node]) => [name, NodeSpec.safeParse(node).data ?? null])),
  }
}

/** Why nothing of a draft is looked at: it is no object, or larger than any spec. */
export const draftFault = (draft: unknown): Fault | null =>
  isRecord(draft) ? valueFault(draft, bounds.specBytes) : ['invalid_field', 'must be an object']

type Fault = [code: Code, message: string]

/** Why a value of a tenant's is not stored: it is no JSON, too large, or has what other code trips over. */
export function valueFault(value: unknown, mostBytes: number): Fault | null {
  if (isDeeperThan(value, bounds.depth)) return ['too_large', `has more than ${bounds.depth} levels`]
  if (hasForbiddenName(value)) return ['invalid_field', 'has a field named __proto__']
  try {
    const bytes = Buffer.byteLength(canonicalJson(value))
    return bytes > mostBytes ? ['too_large', `has ${bytes} bytes, and may have ${mostBytes}`] : null
  } catch (error) {
    if (error instanceof NotCanonical) return ['invalid_field', error.message]
    throw error
  }
}

const hasForbiddenName = (value: unknown): boolean =>
  typeof value === 'object' &&
  value !== null &&
  (Object.hasOwn(value, '__proto__') || Object.values(value).some(hasForbiddenName))

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

function addIssue(issue: z.core.$ZodIssue, findings: Findings): void {
  const [room, name] = issue.path
  const node = room === 'nodes' && name !== undefined ? String(name) : null
  const path = issue.path.map(String)
  if (issue.code === 'unrecognized_keys') {
    for (const key of issue.keys) {
      findings.add(node, pointerTo('', ...path, key), 'invalid_field', 'is not a known field')
    }
    return
  }
  const message = issue.code === 'invalid_key' ? (issue.issues[0]?.message ?? issue.message) : issue.message
  findings.add(node, pointerTo('', ...path), 'invalid_field', message)
}
