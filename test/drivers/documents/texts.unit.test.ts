import { describe, expect, test } from '@jest/globals'
import { jsonPieces } from '../../../drivers/documents/json.ts'
import { markdownPieces } from '../../../drivers/documents/markdown.ts'
import type { Piece } from '../../../drivers/documents/pieces.ts'
import { textPieces } from '../../../drivers/documents/text.ts'
import { chunked, csvOf, wordsOf } from '../../support/documents/extracted.ts'

// What is read out of each type of text, and where it was.

const textsOf = (pieces: Iterable<Piece>): string[] => [...pieces].map(({ text }) => text)
const linesOf = (pieces: Iterable<Piece>): unknown[] =>
  [...pieces].map(({ locator, text }) => {
    const { line, last_line } = locator as { line: number; last_line: number }
    return [line, last_line, text]
  })
const markdown = (content: string): Piece[] => [...markdownPieces(Buffer.from(content))]
const json = (content: unknown, depth = 200): Piece[] => [
  ...jsonPieces(Buffer.from(typeof content === 'string' ? content : JSON.stringify(content)), depth),
]

const nested = (depth: number): string => `${'{"[":'.repeat(depth)}1${'}'.repeat(depth)}`

describe('Markdown', () => {
  test('has the path of headings of each text, and its lines', () => {
    const pieces = markdown('# One\n\nA\n\n## Two\n\nB\nB2\n\nThree\n-----\n\nC\n\n# Four\n\nD\n')
    expect(pieces.map(({ headings, locator, text }) => [headings, locator, text])).toEqual([
      [['One'], { line: 3, last_line: 3 }, 'A'],
      [['One', 'Two'], { line: 7, last_line: 8 }, 'B\nB2'],
      [['One', 'Three'], { line: 13, last_line: 13 }, 'C'],
      [['Four'], { line: 17, last_line: 17 }, 'D'],
    ])
  })

  test('has a heading below which is nothing as a text', () => {
    expect(
      markdown('# One\n\n## Two\n\n## Three\n\nC\n\n# Four').map(({ headings, text }) => [headings, text]),
    ).toEqual([
      [['One'], 'Two'],
      [['One', 'Three'], 'C'],
      [[], 'Four'],
    ])
  })

  test('is read without its marks', () => {
    const content =
      'A *b* **c** `d*e` [f](http://g) ![h](i.png) <b>j</b> &amp; k\\*l  \nm\n\n<div class="n">o <!-- p --></div>\n\n<script>q()</script>\n'
    expect(textsOf(markdown(content))).toEqual(['A b c d*e f h j & k*l\nm', 'o'])
  })

  test('has items with what is in them, lines of code as they are, and quotes', () => {
    const content = '3. a\n4. b\n   - c\n     - d\n\n> q\n> r\n\n```js\nlet x = *1\n\n  y()\n```\n'
    expect(linesOf(markdown(content))).toEqual([
      [1, 1, '3. a'],
      [2, 4, '4. b\n  - c\n    - d'],
      [6, 7, 'q\nr'],
      [10, 10, 'let x = *1'],
      [12, 12, '  y()'],
    ])
  })

  test('has rows of a table with its header and their lines', () => {
    const pieces = markdown('Text\n\n| a | b |\n|---|:-:|\n| 1 | **2** |\n| 3 \\| 4 | |\n')
    expect(linesOf(pieces.slice(1))).toEqual([
      [5, 5, '1 | 2'],
      [6, 6, '3 | 4 | '],
    ])
    expect(pieces.map(({ header }) => header)).toEqual([null, 'a | b', 'a | b'])
  })

  test('has the settings in front of it as lines, and no heading of them', () => {
    expect(linesOf(markdown('---\ntitle: x\ntags: y\n---\n\nText\n'))).toEqual([
      [2, 2, 'title: x'],
      [3, 3, 'tags: y'],
      [6, 6, 'Text'],
    ])
  })

  test('has the same lines with ends of Windows', () => {
    const content = '# One\n\nA\nB\n\n- c\n\n| a |\n|---|\n| 1 |\n'
    expect(markdown(content.replaceAll('\n', '\r\n'))).toEqual(markdown(content))
  })
})

describe('plain text', () => {
  test('has lines, of which an empty one ends a paragraph', () => {
    const pieces = [...textPieces(Buffer.from('\ufeffa\r\nb\n\n \nc'))]
    expect(pieces.map(({ text, join, locator }) => [text, join, locator])).toEqual([
      ['a', '\n\n', { line: 1, last_line: 1 }],
      ['b', '\n', { line: 2, last_line: 2 }],
      ['c', '\n\n', { line: 5, last_line: 5 }],
    ])
  })
})

describe('JSON', () => {
  test('has a line for each value, and its pointer', () => {
    const pieces = json({
      name: 'Ann',
      none: null,
      empty: {},
      tags: ['a', 'b', 3],
      'a/b~c': { d: { e: false } },
      items: [
        { id: 1, at: { city: 'Rome' } },
        { id: 2, parts: [{ n: 5 }, { n: 6 }] },
      ],
    })
    expect(
      pieces.map(({ headings, text, locator }) => [headings, text, (locator as { pointer: string }).pointer]),
    ).toEqual([
      [[], 'name: Ann', '/name'],
      [[], 'tags: a, b, 3', '/tags'],
      [['a/b~c'], 'd.e: false', '/a~1b~0c/d/e'],
      [['items'], 'id: 1', '/items/0/id'],
      [['items'], 'at.city: Rome', '/items/0/at/city'],
      [['items'], 'id: 2', '/items/1/id'],
      [['items'], 'parts.0.n: 5', '/items/1/parts/0/n'],
      [['items'], 'parts.1.n: 6', '/items/1/parts/1/n'],
    ])
  })

  test('has a long list of values one by one', () => {
    const pieces = json({ a: Array.from({ length: 500 }, (_, index) => index) })
    expect(pieces).toHaveLength(500)
    expect(pieces[7]).toMatchObject({ text: '7', headings: ['a'], locator: { pointer: '/a/7' } })
  })

  test.each([
    ['"text"', 'text'],
    ['17', '17'],
    ['false', 'false'],
  ])('may be one value: %s', (content, text) => {
    expect(json(content)).toMatchObject([{ text, locator: { pointer: '' } }])
  })

  test('ends a pointer that is too long at a container', async () => {
    const key = 'k'.repeat(600)
    const [chunk] = await chunked(json({ a: { [key]: { [key]: { b: 1 } } } }))
    expect(chunk?.locator).toEqual({ pointer: `/a/${key}`, last_pointer: `/a/${key}` })
  })

  test('has places that the store takes, whatever the keys are', async () => {
    const key = '\n"'.repeat(700)
    for (const { locator } of await chunked(json({ a: [{ [key]: 1 }, { b: { [key]: { [key]: 2 } } }] })))
      expect(JSON.stringify(locator).length).toBeLessThan(4_096)
  })

  test('may be as deep as the bound', () => {
    expect(json(nested(200))).toHaveLength(1)
    expect(() => json(nested(201))).toThrow('The document has objects and lists nested more than 200 deep')
  })
})

describe('CSV', () => {
  test('has rows with the header, and their lines', async () => {
    const pieces = await csvOf('name,city\n"Ann, B","Par\nis"\n\nBob,"R ""o"" me"\n')
    expect(linesOf(pieces)).toEqual([
      [2, 3, 'Ann, B | Par is'],
      [5, 5, 'Bob | R "o" me'],
    ])
    expect(pieces.map(({ header }) => header)).toEqual(['name | city', 'name | city'])
  })

  test.each([[';'], ['\t'], ['|'], [',']])('is divided by what its first line has: %j', async (delimiter) => {
    const row = (...cells: string[]): string => `${cells.join(delimiter)}\r\n`
    expect(await csvOf(row('"a,;b"', 'c', 'd'), row('1', '2', '3'))).toMatchObject([
      { text: '1 | 2 | 3', header: 'a,;b | c | d' },
    ])
  })

  test.each([
    ['numbers', '1,2\n3,4\n'],
    ['an empty cell', ',2\n3,4\n'],
    ['a name twice', 'a,a\n3,4\n'],
  ])('has no header if its first row has %s', async (_, content) => {
    expect((await csvOf(content)).map(({ header }) => header)).toEqual([null, null])
  })

  test('has the name of the column at each value if the header is long', async () => {
    const columns = Array.from({ length: 60 }, (_, index) => `column${index}`)
    const row = (id: number): string =>
      columns.map((_, index) => (index === 1 ? '' : `${id}-${index}`)).join(',')
    const pieces = await csvOf(`${columns.join(',')}\n${row(1)}\n${row(2)}\n`)
    expect(pieces).toHaveLength(118)
    expect(pieces[0]).toMatchObject({
      text: 'column0: 1-0',
      header: null,
      locator: { line: 2, last_line: 2 },
    })
    expect(pieces[1]).toMatchObject({ text: 'column2: 1-2' })
    const chunks = await chunked(pieces)
    expect(chunks.length).toBeGreaterThan(2)
  })

  test('may have rows of other lengths', async () => {
    expect((await csvOf('a,b\n1,2,3\n4\n')).map(({ text }) => text)).toEqual(['1 | 2 | 3', '4'])
  })

  test('may be divided anywhere on its way', async () => {
    const bytes = Buffer.from('\ufeffname,city\nÄnn,"Zü\nrich"\nBob,東京\n')
    const whole = await csvOf(bytes)
    expect(whole.map(({ text }) => text)).toEqual(['Änn | Zü rich', 'Bob | 東京'])
    for (let at = 1; at < bytes.length; at++)
      expect(await csvOf(bytes.subarray(0, at), bytes.subarray(at))).toEqual(whole)
  })

  test('has its header as a text if there is nothing else', async () => {
    expect(await csvOf('name,city\n')).toMatchObject([{ text: 'name | city', header: null }])
  })

  test('has a row that is too long in several chunks with the header', async () => {
    const chunks = await chunked(await csvOf(`id,text\n1,${wordsOf(1, 400)}\n`))
    expect(chunks.length).toBeGreaterThan(1)
    for (const chunk of chunks) expect(chunk.text.startsWith('id | text\n')).toBe(true)
  })
})
