import { readFileSync } from 'node:fs'
import { ExpressionPool } from '../../../lib/ai/expression-pool.ts'
import type { Evaluation } from '../../../lib/ai/expression-process.ts'
import { machine, quantile, type Row, table, timed } from '../measure.ts'

// Expressions of AI workflows, without a platform: `node script/benchmarks/workflows/expressions.ts` measures them alone.

const evaluations = 2_000
const variables: Evaluation['variables'] = {
  input: { object: { name: 'string', count: 'integer', any: 'any' }, required: [] },
}
const wanted = {
  '/text': { value: 'Hello ${input.name}, ${input.count + 1}' },
  '/when': { expression: 'input.count > 2' },
}
const given = JSON.stringify({ input: { name: 'you', count: 3 } })
/** A hundred million rounds. */
const hundred = `[${Array.from({ length: 100 }, (_, at) => at).join()}]`
const endless = `${hundred}.all(a, ${hundred}.all(b, ${hundred}.all(c, ${hundred}.all(d, a + b + c + d >= 0))))`
const rows = Array.from({ length: 100_000 }, (_, id) => ({
  id,
  name: `name of ${id}`,
  score: id / 3,
  tags: ['a', 'b'],
}))

/** The first evaluation of a process, the next ones, large values, and a process that is ended. */
export async function expressions(): Promise<Row[]> {
  const pool = new ExpressionPool(1)
  try {
    const evaluate = (key: string) => pool.evaluate({ key, variables, wanted, given })
    const first = await timed(() => evaluate('0'))
    const memory = rssMib()
    const next: number[] = []
    for (let at = 0; at < evaluations; at++) next.push(await timed(() => evaluate('0')))
    const ofOther: number[] = []
    for (let at = 0; at < 200; at++) ofOther.push(await timed(() => evaluate(`other ${at}`)))
    const large = await largeValues(pool)
    const ended: number[] = []
    const restarted: number[] = []
    for (let at = 0; at < 5; at++) {
      const bomb = { key: 'bomb', variables, wanted: { '/it': { expression: endless } }, given }
      ended.push(await timed(() => pool.evaluate(bomb).catch(() => null)))
      restarted.push(await timed(() => evaluate('0')))
    }
    return [
      { what: 'first evaluation, with the start of the process', unit: 'ms', figures: [first, ...restarted] },
      { what: 'next evaluation of the same node, median', unit: 'ms', figures: [quantile(next, 0.5)] },
      {
        what: 'next evaluation of the same node, 99th percentile',
        unit: 'ms',
        figures: [quantile(next, 0.99)],
      },
      {
        what: 'first evaluation of a node in a kept process, median',
        unit: 'ms',
        figures: [quantile(ofOther, 0.5)],
      },
      ...large,
      { what: 'until an endless expression is ended', unit: 'ms', figures: ended, note: '100 ms of its own' },
      { what: 'memory of a process after one evaluation', unit: 'MiB', figures: [memory] },
    ]
  } finally {
    await pool.close()
  }
}

async function largeValues(pool: ExpressionPool): Promise<Row[]> {
  const pass = { '/it': { expression: 'input.any' } }
  const filter = { '/it': { expression: 'input.any.filter(r, r.id % 1000 == 0).map(r, r.name)' } }
  const text = jsonOf('x'.repeat(3 * 1024 * 1024))
  const list = jsonOf(rows)
  const times = async (what: string, work: typeof pass, values: string): Promise<Row> => {
    const figures: number[] = []
    for (let at = 0; at < 5; at++) {
      figures.push(await timed(() => pool.evaluate({ key: what, variables, wanted: work, given: values })))
    }
    return { what, unit: 'ms', figures }
  }
  return [
    await times('pass on a text of 3 MiB', pass, text),
    await times(`pass on 100,000 objects (${Math.round(list.length / 1024 / 1024)} MiB)`, pass, list),
    await times('filter 100,000 objects', filter, list),
  ]
}

const jsonOf = (any: unknown): string => JSON.stringify({ input: { any } })

/** Of the one process that this one has started. */
function rssMib(): number {
  const child = readFileSync(`/proc/self/task/${process.pid}/children`, 'utf8').trim()
  const [, kib] = /VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${child}/status`, 'utf8')) ?? []
  return Number(kib) / 1024
}

if (import.meta.main) {
  console.log(`${new Date().toISOString().slice(0, 10)}, ${machine()}\n\n${table(await expressions())}`)
}
