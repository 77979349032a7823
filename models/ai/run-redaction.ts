import { createHmac } from 'node:crypto'
import type { NodeSpec } from '../../lib/ai/node-kinds.ts'
import type { Plan } from '../../lib/ai/plan.ts'
import { mark, type Redaction, redacted } from '../../lib/ai/redaction.ts'
import {
  insertRunKey,
  type Keyed,
  newRunKey,
  openValue,
  runKeyOf,
  storeInTwo,
  storeWithKey,
  type TwoValues,
} from './redacted-values.ts'
import type { AiRunNodeDocument } from './run-node-records.ts'
import { keepValue, readValue, type StoredValue } from './run-values.ts'
import type { AiRunDocument } from './runs.ts'
import type { ReadVersion } from './versions.ts'

// What readers of a run do not see of its values: what its version redacts or, of a part of another run that was given redacted
// values, everything.

type Run = Pick<AiRunDocument, '_id' | 'tenant_id' | 'redacts'>

/** The input of a run that is not there yet. */
export interface NewInput {
  fields: Pick<AiRunDocument, 'input_json' | 'whole_input' | 'redacts'>
  /** Call in the transaction that inserts the run. */
  keep(this: void, run: Keyed): Promise<void>
}

/** `former_runs`: a retry shares their key, and so their values. Not in a transaction. */
export async function newInput(
  { tenant_id, plan }: Pick<ReadVersion, 'tenant_id' | 'plan'>,
  input_json: string,
  { redactsAll = false, former_runs = [] }: { redactsAll?: boolean; former_runs?: string[] } = {},
): Promise<NewInput> {
  const { redacted: its } = plan
  if (!redactsAll && !its) return { fields: { input_json }, keep: () => Promise.resolve() }
  const key = (await runKeyOf(tenant_id, former_runs)) ?? newRunKey()
  const redaction = redactsAll || (its?.input ?? null)
  const whole = redaction === null ? null : (await storeWithKey(key, input_json, redaction)).whole
  return {
    fields: {
      input_json: JSON.stringify(redacted(JSON.parse(input_json), redaction)),
      ...(whole ? { whole_input: whole } : {}),
      redacts: redactsAll ? 'all' : 'some',
    },
    async keep(run) {
      await insertRunKey(run, key)
      await keepValue(whole)
    },
  }
}

/** The JSON of a run's input, for the run itself. */
export const wholeInputOf = async (run: AiRunDocument): Promise<string> =>
  run.whole_input ? openValue(run, run.whole_input) : run.input_json

/** The JSON of a run's output, or a node's, for the run itself. */
export const wholeOf = (run: Keyed, shown: StoredValue, whole: StoredValue | undefined): Promise<string> =>
  whole ? openValue(run, whole) : readValue(shown)

/** What is redacted of a node's output; undefined: it is given no redacted values, and makes none. */
export function redactionOfNode(
  { redacts }: Run,
  { redacted: its }: Plan,
  name: string,
  node: NodeSpec,
): Redaction | undefined {
  if (redacts === undefined) return undefined
  // The names of cases are the author's, and a decision is a person's.
  if (redacts === 'all') return node.kind === 'switch' || node.kind === 'approve' ? null : true
  return its && Object.hasOwn(its.nodes, name) ? its.nodes[name]?.output : undefined
}

/** A node's input has redacted values, which could be guessed and tried: its hash is keyed. */
export async function keyedHash(run: Run, hash: string, redaction: Redaction | undefined): Promise<string> {
  if (run.redacts === undefined) return hash
  const key = await runKeyOf(run.tenant_id, [run._id])
  return createHmac('sha256', key ?? '')
    .update(JSON.stringify([hash, redaction ?? null]))
    .digest('hex')
}

export const redactionJson = (redaction: Redaction | undefined): Pick<AiRunNodeDocument, 'redaction_json'> =>
  redaction === undefined ? {} : { redaction_json: JSON.stringify(redaction) }

export const redactionIn = ({
  redaction_json = 'null',
}: Pick<AiRunNodeDocument, 'redaction_json'>): Redaction => JSON.parse(redaction_json) as Redaction

/** Stores a node's output, not kept yet (see storeValue). */
export const storeOutputOf = (
  node: Pick<AiRunNodeDocument, 'redaction_json' | 'tenant_id' | 'run_id'>,
  json: string,
): Promise<TwoValues> => storeInTwo({ _id: node.run_id, tenant_id: node.tenant_id }, json, redactionIn(node))

/** The fields of a record with a value in two. */
export const outputFields = ({ shown, whole }: TwoValues): Pick<AiRunNodeDocument, 'output' | 'whole'> => ({
  output: shown,
  ...(whole ? { whole } : {}),
})

/** A message about redacted values may quote them. Its code does not. */
export const markedError = <E extends { message: string }>(error: E): E => ({ ...error, message: mark })
