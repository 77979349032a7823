import { relative } from 'node:path'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { makeDocumentExtractor } from '../../../drivers/documents/extractor.ts'
import type { Embedder } from '../../../drivers/embedders.ts'
import { tokenizerOf } from '../../../drivers/onnx/document-tokenizer.ts'
import { openEmbedder } from '../../../drivers/onnx/embedder.ts'
import { openTokens } from '../../../drivers/onnx/tokens.ts'
import { sentenceOf } from '../../support/documents/extracted.ts'
import { embedderFolder, ownEmbedder } from '../../support/embedder.ts'

// Documents are divided by the tokenizer of the platform's own embedder, in their own process.

let embedder: Embedder
beforeAll(async () => {
  embedder = openEmbedder(await ownEmbedder())
})
afterAll(() => embedder.close())

test('a document is divided into texts that the embedder takes whole', async () => {
  const lines = [
    ...Array.from({ length: 100 }, (_, index) => sentenceOf(index, 12)),
    '山高水长风清月白'.repeat(100),
    'eyJhbGciOiJFUzI1NiJ9'.repeat(200),
    '😀 '.repeat(300),
  ]
  const { chunks, tokens } = await makeDocumentExtractor().extract({
    type: 'txt',
    content: Buffer.from(lines.join('\n')),
    tokenizer: tokenizerOf(relative(process.cwd(), embedderFolder)),
  })
  expect(chunks.length).toBeGreaterThan(10)
  const texts = chunks.map(({ text }) => text)
  const counter = openTokens(embedderFolder)
  for (const { text, tokens: count } of chunks) {
    expect(count).toBeLessThanOrEqual(220)
    expect(counter.countTokens(text)).toBeLessThanOrEqual(embedder.facts.most_tokens)
  }
  const embedded = await embedder.embed(texts)
  expect(embedded.vectors).toHaveLength(texts.length)
  expect(Math.abs(embedded.tokens - tokens)).toBeLessThanOrEqual(2 * texts.length)
})
