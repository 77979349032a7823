import { headingSize, type Line } from './pdf-lines.ts'
import { Outline, type Piece } from './pieces.ts'

// Headings, paragraphs, lists and tables of a PDF, by what its lines look like.

/** A bookmark. */
export interface Title {
  text: string
  /** 1: the outermost. */
  level: number
}

interface PageLine extends Line {
  text: string
  page: number
}

const mostOfHeading = 160
/** Bookmarks say which lines are headings, if that many are found among the lines. */
const leastTitles = 2
/** Between paragraphs, in parts of the usual distance between lines. */
const paragraphGap = 1.3
/** Of the first line of a paragraph, in parts of the font's size. */
const indent = 0.8
const leastRows = 3
/** U+F0B7 is the bullet of the font Symbol, as Word writes it. */
const item = /^([\uf0b7•◦▪●‣∙·–—*-]|\(?\d{1,3}[.)]|\(?[a-z][.)])\s/u

/** `pages`: lines of each page in the order of reading. */
export function* pdfPieces(pages: Line[][], titles: Title[]): Generator<Piece> {
  const lines = pages.flatMap((some, index) =>
    some.map((line): PageLine => ({ ...line, text: line.cells.join(' '), page: index + 1 })),
  )
  const levelOf = levels(lines, titles)
  const pitch = usualPitch(lines)
  const outline = new Outline()
  for (let at = 0; at < lines.length; ) {
    const first = lines[at] as PageLine
    const level = levelOf(first)
    let end = at + 1
    if (level !== null) {
      while (end < lines.length && goesOnAsHeading(lines[end - 1] as PageLine, lines[end] as PageLine, level))
        end++
      yield* outline.heading(level, textOf(lines.slice(at, end)), placeOf(lines, at, end))
    } else if ((end = endOfTable(lines, at, levelOf)) - at >= leastRows) {
      yield* tablePieces(outline, lines.slice(at, end))
    } else {
      end = at + 1
      while (end < lines.length && levelOf(lines[end] as PageLine) === null && !isNew(lines, end, pitch))
        end++
      const text = textOf(lines.slice(at, end))
      const place = placeOf(lines, at, end)
      yield item.test(text) ? outline.line(text, place) : outline.paragraph(text, place)
    }
    at = end
  }
  yield* outline.end()

  /** A heading of several lines. */
  function goesOnAsHeading(before: PageLine, line: PageLine, level: number): boolean {
    return (
      isBelow(before, line) &&
      levelOf(line) === level &&
      before.y - line.y < 1.6 * line.size &&
      Math.abs(before.size - line.size) < 0.5 &&
      !/^[\d.]+\s/.test(line.text)
    )
  }
}

type LevelOf = (line: PageLine) => number | null

/** By bookmarks if there are some, and by the size of the font otherwise. */
function levels(lines: PageLine[], titles: Title[]): LevelOf {
  const byText = new Map(titles.map(({ text, level }) => [plain(text), level]))
  const found = new Set(lines.map((line) => plain(line.text)).filter((text) => byText.has(text)))
  if (found.size >= leastTitles) return (line) => byText.get(plain(line.text)) ?? null
  const body = usualSize(lines)
  const isHeading = ({ size, text }: PageLine): boolean =>
    size >= body * headingSize && text.length <= mostOfHeading && /\p{L}/u.test(text)
  const sizes = [...new Set(lines.filter(isHeading).map((line) => Math.round(line.size * 2)))].toSorted(
    (a, b) => b - a,
  )
  return (line) => (isHeading(line) ? sizes.indexOf(Math.round(line.size * 2)) + 1 : null)
}

const plain = (text: string): string =>
  text
    .replaceAll(/[\s\d.]+/gu, ' ')
    .trim()
    .toLowerCase()

/** The size that most characters have. */
function usualSize(lines: PageLine[]): number {
  return mostFrequent(lines.map((line) => [Math.round(line.size * 2) / 2, line.text.length])) ?? 10
}

/** The distance between lines in parts of the font's size. */
function usualPitch(lines: PageLine[]): number {
  const pitches = lines.flatMap((line, index): [number, number][] => {
    const before = lines[index - 1]
    if (!before || !isBelow(before, line)) return []
    const pitch = (before.y - line.y) / line.size
    return pitch < 3 ? [[Math.round(pitch * 10) / 10, 1]] : []
  })
  return mostFrequent(pitches) ?? 1.2
}

function mostFrequent(values: [number, number][]): number | null {
  const weights = new Map<number, number>()
  for (const [value, weight] of values) weights.set(value, (weights.get(value) ?? 0) + weight)
  let most: number | null = null
  for (const [value, weight] of weights)
    if (most === null || weight > (weights.get(most) as number)) most = value
  return most
}

const isBelow = (before: PageLine, line: PageLine): boolean =>
  before.page === line.page && before.column === line.column && before.y > line.y

/** Whether a paragraph begins with this line. */
function isNew(lines: PageLine[], at: number, pitch: number): boolean {
  const before = lines[at - 1] as PageLine
  const line = lines[at] as PageLine
  if (item.test(line.text) || Math.abs(before.size - line.size) > 1) return true
  // At the top of a page or column: a sentence that has not ended goes on.
  if (!isBelow(before, line)) return /[.!?:;]["'”’)\]]*$/u.test(before.text) || !/^\p{Ll}/u.test(line.text)
  if ((before.y - line.y) / line.size > pitch * paragraphGap) return true
  return line.left - before.left > indent * line.size && !item.test(before.text)
}

/** Where the lines with several cells end. */
function endOfTable(lines: PageLine[], at: number, levelOf: LevelOf): number {
  let end = at
  while (
    end < lines.length &&
    (lines[end] as PageLine).cells.length > 1 &&
    levelOf(lines[end] as PageLine) === null
  )
    end++
  return end
}

function* tablePieces(outline: Outline, rows: PageLine[]): Generator<Piece> {
  const [first, second] = rows as [PageLine, PageLine]
  const hasHeader =
    first.cells.length === second.cells.length && first.cells.every((cell) => Number.isNaN(Number(cell)))
  const header = hasHeader ? first.cells.join(' | ') : null
  for (const row of hasHeader ? rows.slice(1) : rows)
    yield outline.line(row.cells.join(' | '), { page: row.page, last_page: row.page }, header)
}

/** Lines of a paragraph. A word that is divided at the end of a line is joined again. */
function textOf(lines: PageLine[]): string {
  let text = ''
  for (const line of lines) {
    const isDivided = /\p{Ll}[-\u00ad\u2010]$/u.test(text) && /^\p{Ll}/u.test(line.text)
    text = isDivided ? text.slice(0, -1) + line.text : text + (text && ' ') + line.text
  }
  return text
}

function placeOf(lines: PageLine[], at: number, end: number): { page: number; last_page: number } {
  return { page: (lines[at] as PageLine).page, last_page: (lines[end - 1] as PageLine).page }
}
