import { describe, expect, test } from '@jest/globals'
import { readPdf } from '../../../drivers/documents/pdf.ts'
import { pdfPiecesOf, sentenceOf } from '../../support/documents/extracted.ts'
import { pdfOf, type Text } from '../../support/documents/pdf.ts'

// PDFs have texts at positions. These are written for the tests, and read back as text.

/** Lines below each other. */
const block = (lines: string[], { x = 72, y = 700, size = 10, pitch = 12 } = {}): Text[] =>
  lines.map((text, index) => ({ text, x, y: y - index * pitch, size }))
const row = (cells: string[], y: number, step = 130): Text[] =>
  cells.map((text, index) => ({ text, x: 72 + index * step, y }))
const shortSentence = (seed: number): string => sentenceOf(seed, 4)
const textsOf = (pieces: { text: string }[]): string[] => pieces.map(({ text }) => text)

const cells = (id: number): string[] => [`thing${id}`, `${id} m`, id % 2 ? 'red' : 'blue']

describe('a PDF', () => {
  test('has paragraphs where lines are further apart, or indented', async () => {
    const pieces = await pdfPiecesOf([
      [
        ...block(['One begins here', 'and ends here.'], { y: 700 }),
        ...block(['Two begins here', 'and ends here.'], { y: 660 }),
        ...block(['Three is indented'], { y: 636, x: 90 }),
        ...block(['and ends here.'], { y: 624 }),
      ],
    ])
    expect(textsOf(pieces)).toEqual([
      'One begins here and ends here.',
      'Two begins here and ends here.',
      'Three is indented and ends here.',
    ])
  })

  test('has headings of several levels by their size', async () => {
    const body = (seed: number, y: number): Text[] => block([sentenceOf(seed)], { y })
    const pieces = await pdfPiecesOf([
      [
        ...block(['A title that goes', 'over two lines'], { y: 740, size: 20, pitch: 24 }),
        ...block(['1 First'], { y: 680, size: 14 }),
        ...body(1, 660),
        ...block(['2 Second'], { y: 630, size: 14 }),
        ...block(['2.1 Inner'], { y: 610, size: 12 }),
        ...body(2, 590),
        ...body(3, 560),
      ],
    ])
    const title = 'A title that goes over two lines'
    expect(pieces.map(({ headings, text }) => [headings, text])).toEqual([
      [[title, '1 First'], sentenceOf(1)],
      [[title, '2 Second', '2.1 Inner'], sentenceOf(2)],
      [[title, '2 Second', '2.1 Inner'], sentenceOf(3)],
    ])
  })

  test('has the headings that its bookmarks name, though they are no larger', async () => {
    const lines = ['Introduction', sentenceOf(1), 'Methods', sentenceOf(2)]
    const pages = [lines.flatMap((text, index) => block([text], { y: 700 - index * 40 }))]
    const pieces = await pdfPiecesOf(pages, { outline: ['1. Introduction', '2. Methods'] })
    expect(pieces.map(({ headings, text }) => [headings, text])).toEqual([
      [['Introduction'], sentenceOf(1)],
      [['Methods'], sentenceOf(2)],
    ])
  })

  test.each([2, 3])('has %i columns one after the other, below a title that spans them', async (count) => {
    const width = 540 / count
    const sentences = Array.from({ length: count }, (_, column) =>
      Array.from({ length: 12 }, (__, line) => `C${column} line ${line} of river stone.`),
    )
    const pieces = await pdfPiecesOf([
      [
        ...block(
          ['A wide line over all of the columns of this page, which goes from its left to its right edge'],
          {
            y: 740,
          },
        ),
        ...sentences.flatMap((lines, column) =>
          block(lines, { x: 36 + column * width, y: 700 - column * 5 }),
        ),
      ],
    ])
    expect(pieces[0]?.text).toMatch(/^A wide line/)
    expect(textsOf(pieces.slice(1)).join(' ')).toBe(sentences.flat().join(' '))
  })

  test('has no running headers, footers and numbers of pages', async () => {
    const pages = Array.from({ length: 6 }, (_, page) => [
      { text: page % 2 ? 'The book' : 'The chapter', x: 72, y: 770 },
      { text: `Page ${page + 1} of 6`, x: 280, y: 30 },
      ...block(['A chapter begins'], { y: 740, size: 18 }),
      ...block(
        [1, 2, 3, 4, 5].map((line) => sentenceOf(page * 10 + line)),
        { y: 700 },
      ),
    ])
    const pieces = await pdfPiecesOf(pages)
    const all = textsOf(pieces).join(' ')
    expect(all).not.toMatch(/Page|The book|The chapter/)
    for (let page = 0; page < 6; page++)
      for (const line of [1, 2, 3, 4, 5]) expect(all).toContain(sentenceOf(page * 10 + line))
    expect(pieces.every(({ headings }) => headings[0] === 'A chapter begins')).toBe(true)
  })

  test('keeps what is at the edge of one page, or differs from page to page', async () => {
    const pages = [1, 2, 3].map((page) =>
      block([sentenceOf(page, 8 + page), 'Same words', sentenceOf(page + 5, 9 - page)], {
        y: 600 + page * 20,
      }),
    )
    const all = textsOf(await pdfPiecesOf(pages)).join(' ')
    expect(all.match(/Same words/g)).toHaveLength(3)
  })

  test('has rows of a table with their header, also on the next page', async () => {
    const header = ['Name', 'Size', 'Colour']
    const page = (from: number): Text[] => [
      ...row(header, 700),
      ...Array.from({ length: 10 }, (_, index) => row(cells(from + index), 684 - index * 14)).flat(),
    ]
    const pieces = await pdfPiecesOf([page(0), page(10), page(20)])
    expect(textsOf(pieces)).toEqual(Array.from({ length: 30 }, (_, id) => cells(id).join(' | ')))
    expect(new Set(pieces.map((piece) => piece.header))).toEqual(new Set(['Name | Size | Colour']))
    expect(pieces.map(({ locator }) => (locator as { page: number }).page)).toEqual(
      Array.from({ length: 30 }, (_, id) => Math.floor(id / 10) + 1),
    )
  })

  test('has the items of a list one by one', async () => {
    const pieces = await pdfPiecesOf([block(['Things:', '- one', '- two that goes', '  on here', '- three'])])
    expect(textsOf(pieces)).toEqual(['Things:', '- one', '- two that goes on here', '- three'])
  })

  test('joins a word that is divided, and a sentence that goes on on the next page', async () => {
    const pieces = await pdfPiecesOf([
      block(['The har-', 'bour is well-', 'Known, and goes'], { y: 100 }),
      block(['on here.', 'The end.']),
    ])
    expect(pieces).toMatchObject([
      { text: 'The harbour is well- Known, and goes on here. The end.', locator: { page: 1, last_page: 2 } },
    ])
  })

  test('has words that were placed one by one, and those printed twice once', async () => {
    const pieces = await pdfPiecesOf([
      [
        { text: 'Hel', x: 72, y: 700 },
        { text: 'lo', x: 86.45, y: 700 },
        { text: 'world', x: 98, y: 700 },
        { text: 'Bold', x: 72, y: 600 },
        { text: 'Bold', x: 72.3, y: 600 },
      ],
    ])
    expect(textsOf(pieces)).toEqual(['Hello world', 'Bold'])
  })

  test('tells how many pages it has, and takes no more than the bound', async () => {
    const pdf = pdfOf([1, 2, 3].map((page) => block([shortSentence(page)])))
    expect(await readPdf(new Uint8Array(pdf), 3)).toMatchObject({ pages: 3 })
    await expect(readPdf(new Uint8Array(pdf), 2)).rejects.toMatchObject({
      fault: 'too_large',
      message: 'The document has more than 2 pages',
    })
  })
})
