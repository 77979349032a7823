import { join } from 'node:path'
import type { Embedder } from '../../../drivers/embedders.ts'
import { openEmbedder } from '../../../drivers/onnx/embedder.ts'
import { readEmbedder } from '../../../drivers/onnx/files.ts'
import { readLayout } from '../../lib/settings.ts'
import { machine, type Row, table, timed } from '../measure.ts'

// The platform's own embedder on one thread, without a platform: `node script/benchmarks/retrieval/embedder.ts`.

const rounds = 20
const question = 'How do I rotate the token of my store?'
const sentence =
  'Each document of a collection has a stage, and it ends as ready or as failed with a reason. '
/** By their tokens. */
const texts = { 23: sentence, 65: sentence.repeat(3), 212: sentence.repeat(10) }
const together = 8

/** Also in CPU time, which is that of one core, whatever else the machine does. */
export async function embedderSpeed(): Promise<Row[]> {
  const embedder = openEmbedder(await readEmbedder(join(readLayout().tools, 'embedder')))
  const before = process.memoryUsage.rss()
  try {
    const loadMs = await timed(() => embedder.embed([question]))
    const rows = await questionRows(embedder)
    for (const [tokens, text] of Object.entries(texts)) rows.push(await rateRow(embedder, tokens, text))
    const usedMib = (process.memoryUsage.rss() - before) / 1024 ** 2
    return [
      ...rows,
      { what: 'load of the model, and the first question', unit: 'ms', figures: [loadMs] },
      { what: 'memory of one thread', unit: 'MiB', figures: [usedMib] },
    ]
  } finally {
    await embedder.close()
  }
}

async function questionRows(embedder: Embedder): Promise<Row[]> {
  const [wall, cpu]: [number[], number[]] = [[], []]
  for (let round = 0; round < rounds; round++) {
    const begun = process.cpuUsage()
    wall.push(await timed(() => embedder.embed([question])))
    cpu.push(cpuMs(begun))
  }
  return [
    { what: 'a question of 12 tokens', unit: 'ms', figures: wall },
    { what: 'a question of 12 tokens, CPU time', unit: 'ms', figures: cpu },
  ]
}

async function rateRow(embedder: Embedder, tokens: string, text: string): Promise<Row> {
  const figures: number[] = []
  for (let round = 0; round < rounds / 4; round++) {
    const begun = process.cpuUsage()
    await embedder.embed(Array.from({ length: together }, () => text))
    figures.push((together / cpuMs(begun)) * 1000)
  }
  return { what: `texts of ${tokens} tokens, ${together} in a call, on one core`, unit: '1/s', figures }
}

function cpuMs(begun: NodeJS.CpuUsage): number {
  const { user, system } = process.cpuUsage(begun)
  return (user + system) / 1000
}

if (import.meta.main) {
  console.log(`${new Date().toISOString().slice(0, 10)}, ${machine()}\n\n${table(await embedderSpeed())}`)
}
