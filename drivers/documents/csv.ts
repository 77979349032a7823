import { Readable } from 'node:stream'
import { CsvError, parse } from 'csv-parse'
import { DocumentRefused } from '../document-errors.ts'
import { cuts, type Piece } from './pieces.ts'
import { checkHasNoNull, checkIsText, newlines, notUtf8In } from './text.ts'

// Rows of a table, read as they come: a file may be larger than memory.

/** A row with more is most likely a quote that is never closed. */
const mostOfRow = 1024 * 1024
/** A longer header would fill each chunk: each value then has the name of its column in front instead. */
const mostOfHeader = 200
const separator = ' | '
const delimiters = [',', ';', '\t', '|']

interface Row {
  cells: string[]
  line: number
  last_line: number
}

/** Throws DocumentRefused. */
export async function* csvPieces(bytes: AsyncIterable<Uint8Array>): AsyncGenerator<Piece> {
  let header: Row | null = null
  let names: string | null = null
  let count = 0
  for await (const row of rowsOf(bytes)) {
    if (count++ === 0 && isHeader(row.cells)) {
      header = row
      names = row.cells.join(separator)
    } else if (header && names && names.length > mostOfHeader) yield* piecesByColumn(row, header)
    else yield* pieceOf(row, names)
  }
  if (count === 1 && header) yield* pieceOf(header, null)
}

/** Names, all different. A number or an empty cell is a value. */
const isHeader = (cells: string[]): boolean =>
  new Set(cells).size === cells.length && cells.every((cell) => cell !== '' && Number.isNaN(Number(cell)))

function* pieceOf(row: Row, header: string | null): Generator<Piece> {
  if (!row.cells.some(Boolean)) return
  yield { ...common(row), text: row.cells.join(separator), header }
}

function* piecesByColumn(row: Row, header: Row): Generator<Piece> {
  let cut: number = cuts.record
  for (const [index, cell] of row.cells.entries()) {
    const column = header.cells[index]
    if (cell) yield { ...common(row), text: column ? `${column}: ${cell}` : cell, header: null, cut }
    if (cell) cut = cuts.line
  }
}

const common = ({ line, last_line }: Row): Omit<Piece, 'text' | 'header'> => ({
  locator: { line, last_line },
  headings: [],
  join: '\n',
  cut: cuts.record,
})

async function* rowsOf(bytes: AsyncIterable<Uint8Array>): AsyncGenerator<Row> {
  const texts = textsOf(bytes)
  const first = await texts.next()
  if (first.done) return
  const parser = parse({
    delimiter: delimiterOf(first.value),
    info: true,
    relax_column_count: true,
    relax_quotes: true,
    skip_empty_lines: true,
    max_record_size: mostOfRow,
  })
  const source = Readable.from(withFirst(first.value, texts))
  source.on('error', (error) => parser.destroy(error))
  source.pipe(parser)
  try {
    for await (const { record, info } of parser as AsyncIterable<{
      record: string[]
      info: { lines: number }
    }>) {
      // The parser tells the last line of a row.
      const within = record.reduce((sum, cell) => sum + newlines(cell), 0)
      yield {
        cells: record.map((cell) => cell.replaceAll(/\s+/gu, ' ').trim()),
        line: info.lines - within,
        last_line: info.lines,
      }
    }
  } catch (error) {
    throw error instanceof CsvError ? faultOf(error) : error
  } finally {
    source.destroy()
  }
}

function faultOf(error: CsvError): DocumentRefused {
  const line = typeof error['lines'] === 'number' ? ` at line ${error['lines']}` : ''
  const why =
    error.code === 'CSV_MAX_RECORD_SIZE'
      ? `a row has more than ${mostOfRow / 1024} KiB${line}; a quote may not be closed`
      : error.code === 'CSV_QUOTE_NOT_CLOSED'
        ? `a quote is not closed${line}`
        : `its rows cannot be told apart${line}`
  return new DocumentRefused('broken', `The document is not valid CSV: ${why}`, { cause: error })
}

/** The delimiter that is most often in the first line, outside of quotes. */
function delimiterOf(text: string): string {
  const line = text.replaceAll(/"[^"]*"/g, '').split('\n', 1)[0] ?? ''
  const counts = delimiters.map((delimiter) => line.split(delimiter).length)
  return delimiters[counts.indexOf(Math.max(...counts))] as string
}

/** The first text has at least the first line, or 64 KiB. Throws DocumentRefused if this is no text in UTF-8. */
async function* textsOf(bytes: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder('utf-8', { fatal: true })
  let line = 1
  let held = ''
  let isFirst = true
  const decode = (some: Uint8Array | null): string => {
    try {
      const text = some ? decoder.decode(some, { stream: true }) : decoder.decode()
      checkHasNoNull('csv', text, line)
      return text
    } catch (error) {
      if (error instanceof DocumentRefused) throw error
      throw notUtf8In(line + lineOfFault(some))
    }
  }
  for await (const some of bytes) {
    if (isFirst) checkIsText('csv', some)
    isFirst = false
    const text = decode(some)
    line += newlines(text)
    held += text
    if (line === 1 && held.length < 65_536) continue
    yield held
    held = ''
  }
  held += decode(null)
  if (held) yield held
}

/** How many lines of these bytes are before the first that is not UTF-8; the bytes may begin within a character. */
function lineOfFault(bytes: Uint8Array | null): number {
  if (!bytes) return 0
  const decoder = new TextDecoder('utf-8', { fatal: true })
  let lines = 0
  let from = bytes.findIndex((byte) => byte < 0x80 || byte >= 0xc0)
  try {
    for (; from !== -1 && from < bytes.length; lines++) {
      const newline = bytes.indexOf(10, from)
      if (newline === -1) return lines
      decoder.decode(bytes.subarray(from, newline + 1))
      from = newline + 1
    }
  } catch {
    return lines
  }
  return lines
}

async function* withFirst(first: string, rest: AsyncIterable<string>): AsyncGenerator<string> {
  yield first
  yield* rest
}
