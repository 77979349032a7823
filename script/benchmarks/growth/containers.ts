import { growthRows, type Point, quantile, type Row, timed } from '../measure.ts'
import type { Stack } from '../stack.ts'
import { countContainers, putContainers, withStored } from './stored.ts'

const rounds = 5
const asks = 100

/**
 * `GET` of one container and of the first page, with growing numbers in the tenant. Each should read only what it
 * returns.
 */
export async function growingTenant(stack: Stack, sizes = [1_000, 10_000, 100_000]): Promise<Row[]> {
  return withStored(stack, async (template) => {
    const ids: string[] = []
    const [one, page]: [Point[], Point[]] = [[], []]
    for (const size of sizes) {
      ids.push(...(await putContainers(template, size - ids.length, { host_id: null })))
      await countContainers(template)
      const any = (): string => `/api/v1/containers/${ids[Math.floor(Math.random() * ids.length)]}`
      one.push({ size, figures: await p50(stack, any) })
      page.push({ size, figures: await p50(stack, () => '/api/v1/containers') })
    }
    return [
      ...growthRows((n) => `GET /containers/{id} with ${n} containers, p50`, 'ms', one, 0.1),
      ...growthRows((n) => `page 1 of ${n} containers, p50`, 'ms', page, 0.1),
    ]
  })
}

/** The median of each round; the first round is a warm-up. */
async function p50(stack: Stack, path: () => string): Promise<number[]> {
  const figures: number[] = []
  for (let round = 0; round <= rounds; round++) {
    const took: number[] = []
    for (let ask = 0; ask < asks; ask++) took.push(await timed(() => get(stack, path())))
    if (round > 0) figures.push(quantile(took, 0.5))
  }
  return figures
}

async function get(stack: Stack, path: string): Promise<void> {
  const { status } = await stack.request('GET', path)
  if (status !== 200) throw new Error(`${path}: ${status}`)
}
