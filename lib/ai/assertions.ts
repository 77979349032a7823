import { z } from 'zod'
import { Constant, NodeName } from './fields.ts'
import { ModelAlias } from './spec.ts'

// What an eval case says of a run's output.

/** Characters of a text that the output must contain, and of a rubric. */
const textChars = 16_384

export const Assertion = z.discriminatedUnion('kind', [
  z.strictObject({
    kind: z.literal('contains'),
    text: z
      .string()
      .min(1)
      .max(textChars)
      .describe('A text that the output, or one of the values in it, must contain'),
  }),
  z.strictObject({
    kind: z.literal('equals'),
    value: Constant.describe('The expected output: any JSON. The order of fields makes no difference'),
  }),
  z.strictObject({
    kind: z.literal('judge'),
    rubric: z
      .string()
      .min(1)
      .max(textChars)
      .describe('What makes an output good; a model judges the output by this rubric'),
    model: z.union([NodeName, ModelAlias]).describe('The judge: a name in the spec’s `models`, or a model'),
  }),
])
export type Assertion = z.output<typeof Assertion>

/** Whether an output is as the case says. A judge decides about the third kind (judging.ts). */
export function holds(assertion: Exclude<Assertion, { kind: 'judge' }>, output: unknown): boolean {
  if (assertion.kind === 'contains') return hasText(output, assertion.text)
  if (isSame(assertion.value, output)) return true
  // Models answer with text, also where it is JSON.
  return (
    typeof output === 'string' &&
    typeof assertion.value !== 'string' &&
    isSame(assertion.value, parsed(output))
  )
}

/** A model may write any number of levels: they are walked without recursion. Names of fields do not count. */
function hasText(output: unknown, text: string): boolean {
  const left = [output]
  while (left.length > 0) {
    const value = left.pop()
    if (typeof value === 'object' && value !== null)
      for (const inner of Object.values(value)) left.push(inner)
    else if (String(value).includes(text)) return true
  }
  return false
}

/** Of JSON values. Goes no deeper than the one with fewer levels, which is the case's: the API bounds those. */
function isSame(one: unknown, other: unknown): boolean {
  if (typeof one !== 'object' || one === null || typeof other !== 'object' || other === null)
    return one === other
  if (Array.isArray(one) !== Array.isArray(other)) return false
  const fields = Object.entries(one)
  const others = other as Record<string, unknown>
  return (
    fields.length === Object.keys(other).length &&
    fields.every(([name, value]) => Object.hasOwn(other, name) && isSame(value, others[name]))
  )
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
