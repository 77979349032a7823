import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { type Row, timed } from '../measure.ts'
import type { Stack } from '../stack.ts'
import { pdfOfLines } from './pdf.ts'

const pages = 100
const linesPerPage = 40
const wordsPerLine = 8
const rounds = 3
const askEveryMs = 100

/** A PDF from its upload until a search finds its last page, with the platform's own embedder. */
export async function retrievalDocuments(stack: Stack): Promise<Row[]> {
  const make = async (path: string, body: object): Promise<string> =>
    (await stack.request<{ id: string }>('POST', path, { name: 'bench-retrieval', ...body })).body.id
  const vpc_id = await make('/api/v1/vpcs', { cidr: '10.93.0.0/16' })
  const subnet_id = await make('/api/v1/subnets', { vpc_id, cidr: '10.93.0.0/24' })
  const root = '/api/v1/rag/collections/bench'
  await stack.finish('POST', '/api/v1/rag/enable', { subnet_id })
  await stack.finish('POST', '/api/v1/rag/collections', { name: 'bench' })
  // The model is loaded at its first call.
  await stack.request('POST', `${root}/search`, { query: 'anything' })
  const figures: number[] = []
  let chunks = 0
  for (let round = 0; round < rounds; round++) {
    const name = `round-${round}.pdf`
    const body = { name, content_base64: pdf(`lastword${round}`).toString('base64') }
    figures.push(
      (await timed(async () => {
        const { id, state } = await stack.finish('POST', `${root}/documents`, body)
        if (state !== 'succeeded') throw new Error(`The upload of ${name} has ${state}`)
        await untilFound(stack, root, `lastword${round}`, id)
      })) / 1000,
    )
    const { body: list } = await stack.request<{ items: { chunks: number }[] }>(
      'GET',
      `${root}/documents?name=${name}`,
    )
    chunks = list.items[0]?.chunks ?? 0
  }
  await stack.finish('POST', '/api/v1/rag/disable')
  await stack.finish('DELETE', `/api/v1/subnets/${subnet_id}`)
  await stack.finish('DELETE', `/api/v1/vpcs/${vpc_id}`)
  const what = `a PDF of ${pages} pages of ${linesPerPage * wordsPerLine} words, ${chunks} chunks, from upload to searchable`
  return [{ what, unit: 's', figures, note: '< 10' }]
}

async function untilFound(stack: Stack, root: string, word: string, id: string): Promise<void> {
  for (;;) {
    const { body } = await stack.request<{ hits: { document: { id: string } }[] }>('POST', `${root}/search`, {
      query: word,
      mode: 'text',
      k: 1,
    })
    if (body.hits[0]?.document.id === id) return
    await delay(askEveryMs)
  }
}

/** Its last page has this word. Texts differ in each, so that all of it is embedded. */
function pdf(last: string): Buffer {
  const words = englishWords()
  const word = (): string => words[Math.floor(Math.random() * words.length)] ?? ''
  const line = (): string => `${Array.from({ length: wordsPerLine }, word).join(' ')}.`
  const all = Array.from({ length: pages }, () => Array.from({ length: linesPerPage }, line))
  all.at(-1)?.push(`${last}.`)
  return pdfOfLines(all)
}

/** As often as the platform's decisions have them: an embedder takes them for as many tokens as English has. */
function englishWords(): string[] {
  const folder = join(import.meta.dirname, '../../../docs/decisions')
  return readdirSync(folder).flatMap(
    (name) => readFileSync(join(folder, name), 'utf8').match(/[A-Za-z]{2,}/g) ?? [],
  )
}
