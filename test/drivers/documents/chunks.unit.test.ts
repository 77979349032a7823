import { describe, expect, test } from '@jest/globals'
import { array, assert, asyncProperty, integer, lorem, oneof, string } from 'fast-check'
import type { DocumentChunk } from '../../../drivers/documents.ts'
import { chunksOf } from '../../../drivers/documents/chunks.ts'
import { jsonPieces } from '../../../drivers/documents/json.ts'
import { markdownPieces } from '../../../drivers/documents/markdown.ts'
import { textPieces } from '../../../drivers/documents/text.ts'
import { chunked, csvOf, listOf, sentenceOf, wordsOf } from '../../support/documents/extracted.ts'
import { tokenizer } from '../../support/documents/tokenizer.ts'

const text = (content: string): ReturnType<typeof textPieces> => textPieces(Buffer.from(content))
const markdown = (content: string): ReturnType<typeof markdownPieces> => markdownPieces(Buffer.from(content))
const bodyOf = ({ text: all, prefix, overlap }: DocumentChunk): string => all.slice(prefix + overlap)
const withoutBlanks = (content: string): string => content.replaceAll(/\s/gu, '')
const paragraphs = (count: number): string[] =>
  Array.from({ length: count }, (_, index) => [0, 1, 2].map((part) => sentenceOf(index * 3 + part)).join(' '))

describe('a chunk', () => {
  test('has at most the tokens that it may have, and loses no text, whatever the text is', async () => {
    const content = array(oneof(string({ unit: 'grapheme', maxLength: 300 }), lorem({ maxCount: 40 })), {
      minLength: 1,
      maxLength: 30,
    })
    await assert(
      asyncProperty(content, integer({ min: 12, max: 220 }), async (parts, most) => {
        const all = parts.join('\n').replaceAll('\0', '')
        if (!all.replaceAll('\ufeff', '').trim()) return
        const chunks = await chunked(text(all), most)
        for (const chunk of chunks) {
          expect(chunk.tokens).toBe(tokenizer.countTokens(chunk.text))
          expect(chunk.tokens).toBeLessThanOrEqual(most)
        }
        expect(withoutBlanks(chunks.map(bodyOf).join(''))).toBe(withoutBlanks(all))
      }),
      { numRuns: 200 },
    )
  })

  test.each([
    ['a word of a megabyte', 'x'.repeat(1_000_000)],
    ['a text without blanks', '山高水长风清月白'.repeat(2_000)],
    ['sentences without blanks', '山高水长。风清月白！'.repeat(2_000)],
    ['characters of two units', '😀'.repeat(5_000)],
    ['a sentence of 5,000 words', wordsOf(1, 5_000)],
  ])('is cut out of %s', async (_, content) => {
    const chunks = await chunked(text(content))
    expect(chunks.length).toBeGreaterThan(1)
    for (const chunk of chunks) {
      expect(chunk.tokens).toBeLessThanOrEqual(220)
      expect(chunk.text.length).toBeLessThanOrEqual(32_768)
      expect(chunk.text.isWellFormed()).toBe(true)
    }
    expect(withoutBlanks(chunks.map(bodyOf).join(''))).toBe(withoutBlanks(content))
    if (!content.includes(' ')) expect(chunks.map(bodyOf).join('')).toBe(content)
  })

  test('fits also if texts have more tokens together than each for itself', async () => {
    const odd = {
      countTokens: (of: string) =>
        of.split(/\s+/u).filter(Boolean).length + 3 * (of.match(/\n/g)?.length ?? 0),
    }
    const lines = Array.from({ length: 200 }, (_, index) => `line ${index}`)
    const chunks = await listOf(chunksOf(text(lines.join('\n')), odd, { tokens: 50, chunks: 1_000 }))
    for (const chunk of chunks) expect(odd.countTokens(chunk.text)).toBeLessThanOrEqual(50)
    expect(chunks.map((chunk) => chunk.text).join('\n')).toBe(lines.join('\n'))
  })

  test('is half full or more, unless its section ends or its paragraphs are long', async () => {
    const mostOfOwn = 220 - 33 // the rest is for what it repeats
    const filled = (chunks: DocumentChunk[]): number[] =>
      chunks.slice(0, -1).map((chunk) => tokenizer.countTokens(bodyOf(chunk)) / mostOfOwn)
    const lines = Array.from({ length: 300 }, (_, index) => sentenceOf(index)).join('\n')
    for (const part of filled(await chunked(text(lines)))) expect(part).toBeGreaterThanOrEqual(0.5)
    for (const part of filled(await chunked(text(paragraphs(60).join('\n\n')))))
      expect(part).toBeGreaterThanOrEqual(0.25)
  })

  test('repeats the last sentence of the one before, and says how much of it that is', async () => {
    const chunks = await chunked(text(paragraphs(40).join(' ')))
    expect(chunks.length).toBeGreaterThan(5)
    expect(chunks[0]).toMatchObject({ prefix: 0, overlap: 0 })
    for (const [index, { text: all, overlap }] of chunks.entries()) {
      if (index === 0) continue
      const repeated = all.slice(0, overlap)
      expect(repeated).toMatch(/^[A-Z][^.]* number \d+\. $/)
      expect(chunks[index - 1]?.text.endsWith(repeated.trim())).toBe(true)
    }
  })

  test('repeats no row, no record, and nothing of another section', async () => {
    const rows = Array.from({ length: 100 }, (_, index) => `${index},${wordsOf(index, 4)}`)
    const records = Array.from({ length: 50 }, (_, id) => ({ id, name: wordsOf(id, 20) }))
    const sections = Array.from({ length: 10 }, (_, index) => `## Part ${index}\n\n${sentenceOf(index, 60)}`)
    for (const chunks of [
      await chunked(await csvOf(`id,words\n${rows.join('\n')}`)),
      await chunked(await csvOf(rows.join('\n'))),
      await chunked(jsonPieces(Buffer.from(JSON.stringify(records)), 200)),
      await chunked(markdown(sections.join('\n\n'))),
    ]) {
      expect(chunks.length).toBeGreaterThan(5)
      for (const { overlap } of chunks) expect(overlap).toBe(0)
    }
  })

  test('has neither null characters nor halves of characters, which JSON may have', async () => {
    const chunks = await chunked(
      jsonPieces(Buffer.from(String.raw`{"a\u0000": {"b": "x\ud800y\u0000z"}, "\ud800": ["w"]}`), 200),
    )
    expect(chunks.map((chunk) => chunk.text)).toEqual(['a \n\nb: x\ufffdy z', '\ufffd: w'])
    for (const { headings } of chunks) expect(headings.join('')).not.toMatch(/[\0\ud800]/)
  })

  test('ends where a paragraph ends, or else a sentence', async () => {
    const inParagraphs = await chunked(text(paragraphs(40).join('\n\n')))
    const ends = new Set(paragraphs(40))
    for (const chunk of inParagraphs) expect(ends).toContain(chunk.text.split('\n\n').at(-1))
    const inSentences = await chunked(text(paragraphs(40).join(' ')))
    expect(inSentences.length).toBeGreaterThan(5)
    for (const chunk of inSentences) expect(chunk.text).toMatch(/number \d+\.$/)
  })

  test('has the headings above it in front, and says how much of it they are', async () => {
    const chunks = await chunked(
      markdown(`# Guide\n\n## Install\n\n${paragraphs(20).join('\n\n')}\n\n## Use\n\nRun it.`),
    )
    expect(chunks.length).toBeGreaterThan(3)
    for (const chunk of chunks.slice(0, -1)) {
      expect(chunk.headings).toEqual(['Guide', 'Install'])
      expect(chunk.text.slice(0, chunk.prefix)).toBe('Guide › Install\n\n')
    }
    expect(chunks.at(-1)).toMatchObject({ text: 'Guide › Use\n\nRun it.', headings: ['Guide', 'Use'] })
  })

  test('keeps room for its own text below a heading that is too long', async () => {
    const [chunk] = await chunked(markdown(`# ${wordsOf(1, 3_000)}\n\n## Inner\n\nA text.`))
    expect(chunk?.tokens).toBeLessThanOrEqual(220)
    expect(chunk?.text).toContain('› Inner\n\nA text.')
    expect(JSON.stringify(chunk?.headings).length).toBeLessThan(2_000)
  })

  test('has whole rows, and the header of their table', async () => {
    const rows = Array.from({ length: 100 }, (_, index) => `| ${index} | ${wordsOf(index, 4)} |`)
    const chunks = await chunked(markdown(`# T\n\n| id | words |\n|---|---|\n${rows.join('\n')}`))
    expect(chunks.length).toBeGreaterThan(3)
    const all = chunks.flatMap((chunk) => {
      expect(chunk.text.startsWith('T\n\nid | words\n')).toBe(true)
      return bodyOf(chunk).split('\n')
    })
    expect(all).toEqual(Array.from({ length: 100 }, (_, index) => `${index} | ${wordsOf(index, 4)}`))
  })

  test('keeps the values of one record together', async () => {
    const records = Array.from({ length: 50 }, (_, id) => ({
      id,
      name: wordsOf(id, 6),
      more: { note: wordsOf(id + 50, 10) },
    }))
    const chunks = await chunked(jsonPieces(Buffer.from(JSON.stringify({ records })), 200))
    expect(chunks.length).toBeGreaterThan(5)
    for (const chunk of chunks) {
      expect(bodyOf(chunk)).toMatch(/^id: \d+\n/)
      expect(chunk.text).toMatch(/\nmore\.note: [^\n]+$/)
    }
  })

  test('tells its first and last place', async () => {
    const chunks = await chunked(text(paragraphs(30).join('\n\n')))
    let next = 1
    for (const { locator } of chunks) {
      expect(locator).toMatchObject({ line: next })
      next = (locator as { last_line: number }).last_line + 2
    }
    expect(next).toBe(61)
  })
})

const hashes = async (content: string): Promise<string[]> =>
  (await chunked(text(content))).map((chunk) => chunk.hash)
const keptOf = (before: string[], after: string[]): number => {
  const had = new Set(before)
  return after.filter((hash) => had.has(hash)).length
}
const hashesOfTable = async (some: string[]): Promise<string[]> =>
  (await chunked(await csvOf(`id,words\n${some.join('\n')}`))).map((chunk) => chunk.hash)
const hashesOfSections = async (some: string[]): Promise<string[]> =>
  (await chunked(markdown(some.join('\n\n')))).map(({ hash }) => hash)

describe('after a change', () => {
  test.each([
    ['a sentence is inserted', (all: string[]) => all.toSpliced(3, 0, 'This sentence is new.')],
    ['a paragraph is removed', (all: string[]) => all.toSpliced(3, 1)],
    ['a paragraph is changed', (all: string[]) => all.with(3, 'This sentence is new.')],
  ])('of which %s at the beginning, most chunks are the same', async (_, change) => {
    const all = paragraphs(600)
    const before = await hashes(all.join('\n\n'))
    const after = await hashes(change(all).join('\n\n'))
    expect(before.length).toBeGreaterThan(100)
    expect(keptOf(before, after)).toBeGreaterThanOrEqual(0.9 * after.length)
    expect(keptOf(before, after)).toBeLessThan(after.length)
  })

  // Paragraphs of which one and a half fit, or two and a half: chunks could all have as many of them, and move together.
  test.each([1, 2, 3, 4, 5, 6, 7, 8, 9, 10])(
    'of a paragraph among equals of %i sentences, most chunks are the same',
    async (sentences) => {
      const all = Array.from({ length: 400 }, (_, index) =>
        Array.from({ length: sentences }, (_ignored, part) =>
          sentenceOf(1_000 + index * sentences + part),
        ).join(' '),
      )
      const before = await hashes(all.join('\n\n'))
      const after = await hashes(all.toSpliced(3, 1).join('\n\n'))
      expect(keptOf(before, after)).toBeGreaterThanOrEqual(0.9 * after.length)
    },
  )

  test('of a row, most chunks of a table are the same', async () => {
    const rows = Array.from({ length: 2_000 }, (_, index) => `${index},${wordsOf(index, 3)}`)
    const before = await hashesOfTable(rows)
    const after = await hashesOfTable(rows.toSpliced(10, 0, 'x,new'))
    expect(keptOf(before, after)).toBeGreaterThanOrEqual(0.9 * after.length)
  })

  test('of one section, the chunks of the others are the same', async () => {
    const sections = Array.from({ length: 10 }, (_, index) => `## Part ${index}\n\n${sentenceOf(index, 60)}`)
    const before = await hashesOfSections(sections)
    const after = await hashesOfSections(sections.with(4, '## Part 4\n\nNew.'))
    expect(keptOf(before, after)).toBe(9)
  })

  test('of places alone, the hashes are the same', async () => {
    const content = paragraphs(10).join('\n\n')
    const before = await chunked(text(content))
    const after = await chunked(text(`\n\n\n${content}`))
    expect(after.map(({ hash }) => hash)).toEqual(before.map(({ hash }) => hash))
    expect(after[0]?.locator).toEqual({
      line: 4,
      last_line: 4 + 2 * (before[0]?.text.split('\n\n').length ?? 0) - 2,
    })
  })
})

test('a document has at most the chunks that it may have', async () => {
  const content = paragraphs(60).join('\n\n')
  const { length } = await chunked(text(content))
  await expect(chunked(text(content), 220, length)).resolves.toHaveLength(length)
  await expect(chunked(text(content), 220, length - 1)).rejects.toMatchObject({
    name: 'DocumentRefused',
    fault: 'too_large',
    stage: 'chunking',
  })
})

test.each(['', ' \n\t\n', '\ufeff'])('a document without text is refused: %j', async (content) => {
  await expect(chunked(text(content))).rejects.toMatchObject({ name: 'DocumentRefused', fault: 'empty' })
})
