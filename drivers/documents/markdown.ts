import { lexer, type Token, type Tokens } from 'marked'
import { DocumentRefused } from '../document-errors.ts'
import { Outline, type Piece } from './pieces.ts'
import { decodeText, linesOf, newlines } from './text.ts'

// Paragraphs, list items, rows of tables and lines of code of a Markdown document, without marks of emphasis and links.

type Place = { line: number; last_line: number }

/** Throws DocumentRefused. */
export function* markdownPieces(bytes: Uint8Array): Generator<Piece> {
  const text = decodeText('md', bytes).replaceAll(/\r\n?/g, '\n')
  const outline = new Outline()
  const front = /^---\n[\s\S]*?\n---(\n|$)/.exec(text)?.[0] ?? ''
  yield* linePieces(outline, front.replaceAll(/^---$/gm, ''), 1)
  try {
    const tokens = lexer(text.slice(front.length), { gfm: true })
    yield* blockPieces(outline, tokens, 1 + newlines(front))
  } catch (error) {
    if (!(error instanceof RangeError)) throw error
    throw new DocumentRefused('too_deep', 'The document has quotes or lists that are nested too deep', {
      cause: error,
    })
  }
  yield* outline.end()
}

/** `line`: of the first token. The tokens' raw texts are all of the document, one after the other. */
function* blockPieces(outline: Outline, tokens: Token[], line: number): Generator<Piece> {
  for (const token of tokens) {
    const next = line + newlines(token.raw)
    yield* tokenPieces(outline, token, line)
    line = next
  }
}

function* tokenPieces(outline: Outline, token: Token, line: number): Generator<Piece> {
  const place = placeOf(token.raw, line)
  switch (token.type) {
    case 'heading':
      yield* outline.heading((token as Tokens.Heading).depth, plain(token), place)
      break
    case 'paragraph':
    case 'text': {
      const text = plain(token)
      if (text) yield outline.paragraph(text, place)
      break
    }
    case 'code':
      yield* codePieces(outline, token as Tokens.Code, line)
      break
    case 'blockquote':
      yield* blockPieces(outline, (token as Tokens.Blockquote).tokens, line)
      break
    case 'list':
      yield* listPieces(outline, token as Tokens.List, line)
      break
    case 'table':
      yield* tablePieces(outline, token as Tokens.Table, line)
      break
    case 'html': {
      const text = withoutTags(token.raw)
      if (text) yield outline.paragraph(text, place)
      break
    }
  }
}

/** From the first to the last line that is not empty. */
function placeOf(raw: string, line: number): Place {
  const before = newlines(/^\s*/.exec(raw)?.[0] ?? '')
  return { line: line + before, last_line: line + Math.max(before, newlines(raw.trimEnd())) }
}

function* linePieces(outline: Outline, text: string, line: number): Generator<Piece> {
  let isFirst = true
  for (const content of linesOf(text)) {
    const place = { line, last_line: line }
    line++
    if (!content.trim()) continue
    yield isFirst ? outline.paragraph(content, place) : outline.line(content, place)
    isFirst = false
  }
}

function codePieces(outline: Outline, { raw, text }: Tokens.Code, line: number): Iterable<Piece> {
  const isFenced = /^ {0,3}(`{3}|~{3})/.test(raw)
  return linePieces(outline, text, line + (isFenced ? 1 : 0))
}

function* listPieces(outline: Outline, list: Tokens.List, line: number): Generator<Piece> {
  let number = typeof list.start === 'number' ? list.start : 1
  let isFirst = true
  for (const item of list.items) {
    const text = `${list.ordered ? `${number}.` : '-'} ${itemText(item)}`
    const place = placeOf(item.raw, line)
    yield isFirst ? outline.paragraph(text, place) : outline.line(text, place)
    isFirst = false
    number++
    line += newlines(item.raw)
  }
}

/** An item with all that is in it; lists in it are indented. */
function itemText({ tokens }: Tokens.ListItem): string {
  return tokens
    .map((token) => {
      if (token.type === 'list')
        return (token as Tokens.List).items
          .map((item) => `  - ${itemText(item).replaceAll('\n', '\n  ')}`)
          .join('\n')
      if (token.type === 'code') return (token as Tokens.Code).text
      if (token.type === 'html') return withoutTags(token.raw)
      return token.type === 'space' ? '' : plain(token)
    })
    .filter(Boolean)
    .join('\n')
}

/** The line of a row follows from its number: a table has one line for its header, and one below it. */
function* tablePieces(outline: Outline, table: Tokens.Table, line: number): Generator<Piece> {
  const header = rowText(table.header)
  if (table.rows.length === 0) yield outline.paragraph(header, { line, last_line: line })
  for (const [index, cells] of table.rows.entries()) {
    const at = line + 2 + index
    yield outline.line(rowText(cells), { line: at, last_line: at }, header)
  }
}

const rowText = (cells: Tokens.TableCell[]): string => cells.map((cell) => inline(cell.tokens)).join(' | ')

const plain = (token: Token): string =>
  ('tokens' in token && token.tokens
    ? inline(token.tokens)
    : 'text' in token
      ? String(token.text)
      : token.raw
  ).trim()

/** The text of inline tokens as a reader sees it. */
const inline = (tokens: Token[]): string =>
  tokens
    .map((token) => {
      if (token.type === 'br') return '\n'
      if (token.type === 'html') return withoutTags(token.raw)
      if ('tokens' in token && token.tokens?.length) return inline(token.tokens)
      return unescaped('text' in token ? String(token.text) : token.raw)
    })
    .join('')

const withoutTags = (html: string): string =>
  unescaped(
    html
      .replaceAll(/<!--[\s\S]*?(-->|$)/g, '')
      .replaceAll(/<(script|style)\b[\s\S]*?(<\/\1>|$)/gi, '')
      .replaceAll(/<\/?[a-z][^<>]*>/gi, ''),
  ).trim()

const entities: Record<string, string> = { amp: '&', lt: '<', gt: '>', quot: '"', nbsp: ' ', '#39': "'" }
const unescaped = (text: string): string =>
  text.replaceAll(/&(amp|lt|gt|quot|nbsp|#39);/g, (_, name: string) => entities[name] as string)
