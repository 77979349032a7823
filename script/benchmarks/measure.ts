import { cpus, totalmem } from 'node:os'

/** One row of the table: what was measured, its figures, and its reference. */
export interface Row {
  what: string
  unit: string
  /** One figure per round. */
  figures: number[]
  note?: string
}

/** The middle figure; for an even number, the mean of the two middle ones. */
export function median(figures: number[]): number {
  const sorted = figures.toSorted((a, b) => a - b)
  const middle = Math.floor(sorted.length / 2)
  const upper = sorted[middle] ?? Number.NaN
  return sorted.length % 2 ? upper : ((sorted[middle - 1] ?? Number.NaN) + upper) / 2
}

/** The figure below which `share` (0 to 1) of all figures lie. */
export function quantile(figures: number[], share: number): number {
  const sorted = figures.toSorted((a, b) => a - b)
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN
}

/** The ratios of each round. */
export const ratios = (figures: number[], others: number[]): number[] =>
  figures.map((figure, round) => figure / (others[round] ?? Number.NaN))

/** The milliseconds that `work` takes. */
export async function timed(work: () => Promise<unknown>): Promise<number> {
  const began = performance.now()
  await work()
  return performance.now() - began
}

/** The cost of one size: a figure per round. */
export interface Point {
  size: number
  figures: number[]
}

/**
 * A row for each size, and one for the exponent of growth: the slope of the median costs over the sizes, both as
 * logarithms. 0 is a constant cost, 1 a linear one. `what` names the cost at a size.
 */
export function growthRows(
  what: (size: string) => string,
  unit: string,
  points: Point[],
  goal: number,
): Row[] {
  const slope = exponent(points.map(({ size, figures }) => [size, median(figures)]))
  return [
    ...points.map(({ size, figures }) => ({ what: what(size.toLocaleString('en')), unit, figures })),
    { what: `${what('n')}: exponent`, unit: '', figures: [slope], note: `≤ ${goal}` },
  ]
}

/** The slope of the least-squares line through the costs. Size 0 counts as 1. */
function exponent(costs: [size: number, cost: number][]): number {
  const points = costs.map(([size, cost]) => [Math.log(Math.max(1, size)), Math.log(cost)] as const)
  const mean = (of: 0 | 1): number => points.reduce((sum, point) => sum + point[of], 0) / points.length
  const [x, y] = [mean(0), mean(1)]
  const rise = points.reduce((sum, point) => sum + (point[0] - x) * (point[1] - y), 0)
  return rise / points.reduce((sum, point) => sum + (point[0] - x) ** 2, 0)
}

const show = (figure: number): string =>
  figure >= 100 ? figure.toFixed(0) : figure.toFixed(figure >= 10 ? 1 : figure >= 1 ? 2 : 3)

/** The table as Markdown: minimum, median and maximum of each row. */
export function table(rows: Row[]): string {
  const lines = rows.map(({ what, unit, figures, note }) => {
    const [low, mid, high] = [Math.min(...figures), median(figures), Math.max(...figures)].map(show)
    return `| ${what.replaceAll('|', '\\|')} | ${unit} | ${low} | ${mid} | ${high} | ${figures.length} | ${note ?? ''} |`
  })
  return ['| what | unit | min | median | max | n | goal |', '|---|---|---|---|---|---|---|', ...lines].join(
    '\n',
  )
}

export const machine = (): string => {
  const [first] = cpus()
  return `${cpus().length} × ${first?.model.trim() ?? 'unknown cpu'}, ${Math.round(totalmem() / 2 ** 30)} GiB, Node ${process.versions.node}`
}
