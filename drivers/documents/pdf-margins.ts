import { cellsOfRow, headingSize, isOnLine, median, type Segment } from './pdf-lines.ts'

// Running headers and footers: lines at the edge of a page that are in the same place on pages near it. A larger line is a
// heading: chapters begin at the same place too.

const linesAtEdge = 3
/** Some books alternate between two headers. */
const nearPages = 2
const leastPages = 3

/** With more numbers a line is a row of a table rather than a footer. */
const mostNumbers = 3

interface EdgeLine {
  /** The line is running if one of these is on pages near it. */
  keys: string[]
  segments: Segment[]
}

/** `pages`: segments of each page, from top to bottom. */
export function withoutRunningLines(pages: Segment[][]): Segment[][] {
  const edges = pages.map(edgeOf)
  const pagesByKey = new Map<string, number[]>()
  for (const [page, lines] of edges.entries())
    for (const key of new Set(lines.flatMap((line) => line.keys))) {
      const on = pagesByKey.get(key)
      if (on) on.push(page)
      else pagesByKey.set(key, [page])
    }
  const runsByKey = new Map<string, Map<number, boolean>>()
  for (const [key, on] of pagesByKey) if (on.length >= leastPages) runsByKey.set(key, runs(on))
  const isDropped = ({ keys, segments }: EdgeLine, page: number): boolean =>
    keys.some((key) => {
      const isFirst = runsByKey.get(key)?.get(page)
      // The header of a table that goes over pages is needed once.
      return isFirst !== undefined && !(isFirst && segments.length >= cellsOfRow)
    })
  return pages.map((segments, page) => {
    const dropped = new Set(
      edges[page]?.filter((line) => isDropped(line, page)).flatMap((line) => line.segments),
    )
    return dropped.size === 0 ? segments : segments.filter((segment) => !dropped.has(segment))
  })
}

/** The pages that have enough others of the list near them, and whether each is the first of those. */
function runs(on: number[]): Map<number, boolean> {
  const found = new Map<number, boolean>()
  let run: number[] = []
  for (const page of [...on, Number.POSITIVE_INFINITY]) {
    if (run.length > 0 && page - (run.at(-1) as number) > nearPages) {
      if (run.length >= leastPages) for (const [index, one] of run.entries()) found.set(one, index === 0)
      run = []
    }
    run.push(page)
  }
  return found
}

function edgeOf(segments: Segment[], page: number): EdgeLine[] {
  const usual = median(segments.map((segment) => segment.size))
  const top = takeLines(segments, linesAtEdge)
  const bottom = takeLines(segments.toReversed(), linesAtEdge)
  return [...top, ...bottom]
    .filter((line) => line.every(({ size }) => size < usual * headingSize))
    .map((line) => ({ keys: keysOf(line, page), segments: line }))
}

function takeLines(segments: Iterable<Segment>, most: number): Segment[][] {
  const lines: Segment[][] = []
  for (const segment of segments) {
    const first = lines.at(-1)?.[0]
    if (first && isOnLine(first, segment)) lines.at(-1)?.push(segment)
    else if (lines.length === most) break
    else lines.push([segment])
  }
  return lines
}

/**
 * Place and text, with each number as it is and as its distance from the page's: one of them is the same on all pages, since
 * the number of a page grows by one with each. Rows of a table have numbers too, which grow otherwise.
 */
function keysOf(line: Segment[], page: number): string[] {
  const text = line
    .toSorted((a, b) => a.left - b.left)
    .map((segment) => segment.text)
    .join(' ')
  const place = `${Math.round(line[0]?.y ?? 0)} `
  const parts = text.split(/(\d{1,9})/)
  let keys = [place]
  for (const [index, part] of parts.entries()) {
    const isNumber = index % 2 === 1
    const forms = isNumber && parts.length <= 2 * mostNumbers + 1 ? [part, `#${Number(part) - page}`] : [part]
    keys = keys.flatMap((key) => forms.map((form) => key + form))
  }
  return keys
}
