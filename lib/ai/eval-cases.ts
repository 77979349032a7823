import type { Assertion } from './assertions.ts'
import { canonicalJson, hashOf } from './canonical.ts'
import type { Passing } from './verdicts.ts'

/** What of an eval case decides its verdict, and its name. */
export interface EvalCase extends Passing {
  /** Unique in the workflow. */
  name: string
  /** Of the runs: any JSON. */
  input: unknown
  assertion: Assertion
}

/** The SHA-256 of the canonical JSON of all cases of a workflow, by name. Null: there are none. */
export const caseSetHash = (cases: readonly EvalCase[]): string | null =>
  cases.length === 0 ? null : hashOf(cases.map(counting).toSorted(byName))

/** Bytes of the canonical JSON of a case. */
export const caseBytes = (one: EvalCase): number => Buffer.byteLength(canonicalJson(counting(one)))

const counting = ({ name, input, assertion, repeats, min_pass }: EvalCase): EvalCase => ({
  name,
  input,
  assertion,
  repeats,
  min_pass,
})

const byName = ({ name: one }: EvalCase, { name: other }: EvalCase): number => (one < other ? -1 : 1)
