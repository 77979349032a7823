// Lines of a PDF's page in the order in which they are read. A PDF has positions of texts, and no lines or columns.

/** A text as pdf.js gives it. */
export interface Item {
  str: string
  /** a, b, c, d, x, y: from the left and the bottom of the page. */
  transform: number[]
  width: number
}

/** A text without large gaps. */
export interface Segment {
  text: string
  left: number
  right: number
  /** Of the baseline. */
  y: number
  size: number
}

export interface Line {
  /** More than one: there are large gaps between them. */
  cells: string[]
  left: number
  right: number
  y: number
  size: number
  /** Which column of the page, in the order of reading. */
  column: number
}

/** Gaps in parts of the font's size. */
const gaps = { word: 0.15, cell: 1, gutter: 0.8 }
/** A column has lines of text: what is narrower or less is a table, or labels. */
const leastOfColumn = { lines: 4, characters: 15 }
const mostColumns = 6
/** A line with that many short texts is the row of a table, and no line of several columns. */
export const cellsOfRow = 3
/** A heading is larger than the text around it by this factor. */
export const headingSize = 1.12

/** Segments from top to bottom. */
export function segmentsOf(items: Item[]): Segment[] {
  const texts = upright(items.filter(({ str }) => str.trim() !== ''))
  texts.sort((a, b) => b.y - a.y)
  const lines: Segment[][] = []
  for (let from = 0; from < texts.length; ) {
    const first = texts[from] as Segment
    let to = from + 1
    while (to < texts.length && isOnLine(first, texts[to] as Segment)) to++
    lines.push(merged(texts.slice(from, to)))
    from = to
  }
  return lines.flat()
}

export const isOnLine = (first: Pick<Segment, 'y' | 'size'>, other: Pick<Segment, 'y' | 'size'>): boolean =>
  Math.abs(first.y - other.y) <= 0.4 * Math.min(first.size, other.size)

/** Texts in the direction that most of the page has, as if that were from left to right. Others are marks at the edge. */
function upright(items: Item[]): Segment[] {
  const quarters = [0, 0, 0, 0]
  const turned = items.map(({ str, transform: [a = 1, b = 0] }) => {
    const quarter = ((Math.round(Math.atan2(b, a) / (Math.PI / 2)) % 4) + 4) % 4
    quarters[quarter] = (quarters[quarter] as number) + str.length
    return quarter
  })
  const most = quarters.indexOf(Math.max(...quarters))
  return items.flatMap(({ str, transform: [, , c = 0, d = 10, x = 0, y = 0], width }, index) => {
    if (turned[index] !== most) return []
    const [left, baseline] = (
      [
        [x, y],
        [y, -x],
        [-x, -y],
        [-y, x],
      ] as const
    )[most] as readonly [number, number]
    return [{ text: str, left, right: left + width, y: baseline, size: Math.hypot(c, d) || 1 }]
  })
}

/** The texts of one line, joined where the gap is not large. */
function merged(texts: Segment[]): Segment[] {
  const segments: Segment[] = []
  let last: Segment | null = null
  for (const text of texts.toSorted((a, b) => a.left - b.left)) {
    const gap = last ? (text.left - last.right) / Math.max(last.size, text.size) : 0
    if (!last || gap > gaps.cell) {
      last = { ...text, text: text.text.trim() }
      segments.push(last)
      continue
    }
    // Some programs print a text twice, a little beside, to make it bold.
    if (gap < -0.5 && last.text.endsWith(text.text.trim())) continue
    const isApart = gap > gaps.word || /^\s/.test(text.text)
    last.text += (isApart && !last.text.endsWith(' ') ? ' ' : '') + text.text.trimStart()
    last.right = Math.max(last.right, text.right)
    // A footnote's mark does not make the line small.
    last.size = Math.max(last.size, text.size)
  }
  for (const segment of segments) segment.text = segment.text.replaceAll(/\s+/gu, ' ').trim()
  return segments
}

/** Lines in the order of reading: columns one after the other, between what spans them. */
export function linesOf(segments: Segment[]): Line[] {
  const parts: Line[][] = []
  const inTable = cellsIn(segments)
  let column = 0
  const read = (some: Segment[], depth: number): void => {
    const gutter = depth < mostColumns ? gutterOf(some.filter((segment) => !inTable.has(segment))) : null
    if (gutter === null) {
      parts.push(rows(some, column++))
      return
    }
    let left: Segment[] = []
    let right: Segment[] = []
    const across: Segment[] = []
    const flush = (): void => {
      if (across.length > 0) parts.push(rows(across.splice(0), column++))
      for (const side of [left, right]) if (side.length > 0) read(side, depth + 1)
      left = []
      right = []
    }
    for (const segment of some) {
      const isAcross = inTable.has(segment) || (segment.left < gutter && segment.right > gutter)
      if (isAcross && (left.length > 0 || right.length > 0)) flush()
      if (!isAcross && across.length > 0) parts.push(rows(across.splice(0), column++))
      if (isAcross) across.push(segment)
      else if (segment.right <= gutter) left.push(segment)
      else right.push(segment)
    }
    flush()
  }
  read(segments, 0)
  return parts.flat()
}

function cellsIn(segments: Segment[]): Set<Segment> {
  const cells = new Set<Segment>()
  for (let from = 0; from < segments.length; ) {
    const first = segments[from] as Segment
    let to = from + 1
    while (to < segments.length && isOnLine(first, segments[to] as Segment)) to++
    const line = segments.slice(from, to)
    const isRow =
      line.length >= cellsOfRow && median(line.map(({ text }) => text.length)) < leastOfColumn.characters
    if (isRow) for (const cell of line) cells.add(cell)
    from = to
  }
  return cells
}

function rows(segments: Segment[], column: number): Line[] {
  const lines: Line[] = []
  for (const segment of segments) {
    const last = lines.at(-1)
    if (last && isOnLine(last, segment)) {
      last.cells.push(segment.text)
      last.right = Math.max(last.right, segment.right)
      last.size = Math.max(last.size, segment.size)
    } else {
      const { text, left, right, y, size } = segment
      lines.push({ cells: [text], left, right, y, size, column })
    }
  }
  return lines
}

/** The middle of the blank between two columns. Null: there are no columns. */
function gutterOf(segments: Segment[]): number | null {
  if (segments.length < 2 * leastOfColumn.lines) return null
  // A page may have more texts than a call has arguments.
  const left = segments.reduce((least, segment) => Math.min(least, segment.left), Infinity)
  const right = segments.reduce((most, segment) => Math.max(most, segment.right), -Infinity)
  const size = median(segments.map((segment) => segment.size))
  // How many segments cover each point.
  const width = Math.ceil(right - left)
  if (!(width > 0 && width < 20_000)) return null
  const covered = new Uint32Array(width + 1)
  for (const segment of segments)
    for (
      let at = Math.max(0, Math.floor(segment.left - left));
      at < segment.right - left && at <= width;
      at++
    )
      covered[at] = (covered[at] as number) + 1
  const [from, to] = [Math.floor(width * 0.15), Math.ceil(width * 0.85)]
  // Titles and wide pictures' captions span the columns.
  const few = covered.subarray(from, to).reduce((least, count) => Math.min(least, count), Infinity)
  if (few > 0.3 * covered.reduce((most, count) => Math.max(most, count), 0)) return null
  let best: { start: number; end: number } | null = null
  for (let at = from; at < to; at++) {
    if ((covered[at] as number) > few) continue
    const start = at
    while (at < to && (covered[at] as number) <= few) at++
    if (!best || at - start > best.end - best.start) best = { start, end: at }
  }
  if (!best || best.end - best.start < gaps.gutter * size) return null
  const gutter = left + (best.start + best.end) / 2
  const sides = [
    segments.filter((segment) => segment.right <= gutter),
    segments.filter((segment) => segment.left >= gutter),
  ]
  return sides.every(isColumn) ? gutter : null
}

const isColumn = (segments: Segment[]): boolean =>
  segments.length >= leastOfColumn.lines &&
  median(segments.map((segment) => segment.text.length)) >= leastOfColumn.characters

export function median(values: number[]): number {
  return values.toSorted((a, b) => a - b)[values.length >> 1] ?? 0
}
