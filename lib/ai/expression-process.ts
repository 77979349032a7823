import { Script } from 'node:vm'
import { evaluationBounds } from './bounds.ts'
import { readJson } from './cel-values.ts'
import { EvaluationFailed, evaluateAll, jsonOf, Scopes, type Wanted } from './evaluate.ts'
import type { Type } from './types.ts'

// A process that evaluates what tenants wrote, one job at a time. expression-pool.ts starts it, and ends it if a job
// takes too long.

/** The values come and go as JSON: a text is copied faster than the objects that it describes. */
export interface Evaluation {
  is: 'evaluation'
  /** Names spec and node: evaluations of the same key have the same types. */
  key: string
  variables: Record<string, Type>
  /** By JSON pointer. */
  wanted: Record<string, Wanted>
  /** JSON of an object with the variables. */
  given: string
}

/** Whether a value fits a schema. */
export interface Check {
  is: 'check'
  /** Names the version and the place of the schema. */
  key: string
  schema: Record<string, unknown>
  /** JSON of the value. */
  given: string
}

export type Job = Evaluation | Check

export type Message =
  /** The values are read: from here on the processor time counts. */
  | { is: 'begun' }
  /** What is left to do is bounded by the size of a result. */
  | { is: 'evaluated' }
  | { is: 'done'; result: string }
  | { is: 'failed'; message: string; pointer: string | null; code: 'failed' | 'too_large' }

const scopes = new Scopes()
const tell = (message: Message): void => void process.send?.(message)

process.on('message', (job: Job) => void answer(job))
process.on('disconnect', () => process.exit())

async function answer(job: Job): Promise<void> {
  try {
    const result = job.is === 'check' ? await check(job) : evaluate(job)
    const isTooLarge = Buffer.byteLength(result) > evaluationBounds.outputBytes
    tell(
      isTooLarge
        ? { is: 'failed', code: 'too_large', message: tooLarge, pointer: null }
        : { is: 'done', result },
    )
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error)
    const { pointer, isTooLarge } =
      error instanceof EvaluationFailed ? error : { pointer: null, isTooLarge: false }
    tell({ is: 'failed', code: isTooLarge ? 'too_large' : 'failed', message, pointer })
  }
}

const tooLarge = 'The value is larger than a node’s output'

function evaluate({ key, variables, wanted, given }: Evaluation): string {
  const values = readJson(given) as Record<string, unknown>
  return withinTime(() => {
    const results = evaluateAll(scopes.of(key, variables), wanted, values)
    tell({ is: 'evaluated' })
    return jsonOf(results)
  })
}

async function check({ key, schema, given }: Check): Promise<string> {
  // Ajv takes a third of the start, and many processes check no schema.
  const { compiledSchema, faultOf } = await import('./schema-checks.ts')
  const value: unknown = JSON.parse(given)
  const compiled = compiledSchema(key, schema)
  return withinTime(() => JSON.stringify(faultOf(compiled, value)))
}

const work = Symbol.for('keelson.work')
const script = new Script("globalThis[Symbol.for('keelson.work')]()")

/** The pool counts processor time from here on. If the pool's program was killed, the job ends by the clock. */
function withinTime(run: () => string): string {
  tell({ is: 'begun' })
  Object.assign(globalThis, { [work]: run })
  return script.runInThisContext({ timeout: evaluationBounds.wallMs }) as string
}
