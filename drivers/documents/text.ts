import { isUtf8 } from 'node:buffer'
import { DocumentRefused } from '../document-errors.ts'
import { Outline, type Piece } from './pieces.ts'

// What all types of text have in common, and plain text.

const byteOrderMark = '\ufeff'

/** What a file that is no text begins with. */
const signatures: [string, string][] = [
  ['%PDF-', 'a PDF'],
  ['PK\x03\x04', 'a ZIP file, such as an office document'],
  ['\x1f\x8b', 'a gzip file'],
  ['\x89PNG', 'a picture (PNG)'],
  ['\xff\xd8\xff', 'a picture (JPEG)'],
  ['GIF8', 'a picture (GIF)'],
  ['\xd0\xcf\x11\xe0', 'an old office document'],
  ['{\\rtf', 'an RTF document'],
  ['\x7fELF', 'a program'],
]

/** What the beginning looks like: 'a PDF'. Null: nothing that is known. */
export function likeness(beginning: Uint8Array): string | null {
  const start = Buffer.from(beginning.subarray(0, 256)).toString('latin1')
  const known = signatures.find(([signature]) => start.startsWith(signature))
  if (known) return known[1]
  if (start.startsWith('\xff\xfe') || start.startsWith('\xfe\xff')) return 'text in UTF-16'
  if (/^\s*(<!doctype html|<html)/i.test(start)) return 'an HTML page'
  if (/^\s*(\{\s*"|\[\s*["[{])/.test(start)) return 'JSON'
  return null
}

/** What a document of a type may begin with all the same: Markdown may have tags. */
const harmless: Record<string, string[]> = {
  txt: ['JSON', 'an HTML page'],
  md: ['JSON', 'an HTML page'],
  json: ['JSON'],
}

/** Throws DocumentRefused if the beginning is of something else than text. */
export function checkIsText(type: string, beginning: Uint8Array): void {
  const like = likeness(beginning)
  if (like && !harmless[type]?.includes(like))
    throw new DocumentRefused(
      like === 'text in UTF-16' ? 'not_utf8' : 'wrong_type',
      `The document is not of type ${type}: it looks like ${like}`,
    )
}

/** Throws DocumentRefused if the bytes are no text in UTF-8. */
export function decodeText(type: string, bytes: Uint8Array): string {
  checkIsText(type, bytes)
  if (!isUtf8(bytes)) throw notUtf8(bytes)
  const text = new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes)
  checkHasNoNull(type, text, 1)
  return text.startsWith(byteOrderMark) ? text.slice(1) : text
}

/** `line`: of the beginning of this text. */
export function checkHasNoNull(type: string, text: string, line: number): void {
  const at = text.indexOf('\0')
  if (at === -1) return
  const inLine = line + newlines(text.slice(0, at))
  throw new DocumentRefused(
    'wrong_type',
    `The document is not of type ${type}: line ${inLine} has a null byte`,
  )
}

/** A line in UTF-8 ends at a byte that is no part of any other character. */
function notUtf8(bytes: Uint8Array): DocumentRefused {
  let line = 1
  for (let from = 0; from < bytes.length; line++) {
    const newline = bytes.indexOf(10, from)
    const end = newline === -1 ? bytes.length : newline + 1
    if (!isUtf8(bytes.subarray(from, end))) break
    from = end
  }
  return notUtf8In(line)
}

export const notUtf8In = (line: number): DocumentRefused =>
  new DocumentRefused('not_utf8', `The document is not encoded in UTF-8: see line ${line}`)

export function newlines(text: string): number {
  let count = 0
  for (let at = text.indexOf('\n'); at !== -1; at = text.indexOf('\n', at + 1)) count++
  return count
}

/** Lines, of which an empty one ends a paragraph. */
export function* textPieces(bytes: Uint8Array): Generator<Piece> {
  const text = decodeText('txt', bytes)
  const outline = new Outline()
  let isNew = true
  let line = 0
  for (const content of linesOf(text)) {
    line++
    if (!content.trim()) {
      isNew = true
      continue
    }
    const locator = { line, last_line: line }
    yield isNew ? outline.paragraph(content, locator) : outline.line(content, locator)
    isNew = false
  }
}

/** One after the other: a list of all would take more memory than the text. */
export function* linesOf(text: string): Generator<string> {
  for (let from = 0; from <= text.length; ) {
    const newline = text.indexOf('\n', from)
    const end = newline === -1 ? text.length : newline
    yield text.slice(from, text[end - 1] === '\r' ? end - 1 : end)
    from = end + 1
  }
}
