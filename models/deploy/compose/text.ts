import {
  Composer,
  type CST,
  type Document,
  isAlias,
  isMap,
  isSeq,
  Lexer,
  LineCounter,
  type Node,
  Parser,
  type ScalarTag,
} from 'yaml'
import { type InputError, InvalidInput } from '../../../lib/problem.ts'

// The text of a compose file, which may come from anyone: parsed within limits, and every fault with its line.

/** A longer text is refused. */
export const composeAtMost = 256 * 1024
const deepest = 32
/**
 * Keys, values and the marks and spaces between them. The parser compares each key of a mapping with all before it, so its
 * time grows with the square. The templates have 450 at most.
 */
const tokensAtMost = 5_000
/** The document, and the scalar at the bottom. */
const aroundEach = 2
/** Aliases may multiply: the parser counts what they stand for. */
const aliasesAtMost = 100

export type Path = (string | number)[]

/** What is wrong, and where. */
export interface Fault {
  path: Path
  message: string
}

/** A text that parses. */
export interface ParsedText {
  value: unknown
  /** The line of what is at this path, or of the nearest around it. */
  lineOf(path: Path): number
}

/** Each has a line, which is looked for in the text. */
const faultsShown = 100

const pointer = '/docker_compose'
const errorAt = (line: number, message: string): InputError => ({
  pointer,
  line,
  message: `line ${line}: ${message}`,
})

/** The refusal of a text, which names the line of each fault, of the first 100. */
export const refusal = (text: ParsedText, faults: Fault[]): InvalidInput =>
  new InvalidInput(
    422,
    faults
      .slice(0, faultsShown)
      .map(({ path, message }) =>
        errorAt(text.lineOf(path), path.length ? `${path.join('.')}: ${message}` : message),
      ),
  )

/** Parses a text. Throws InvalidInput. */
export function parseText(text: string): ParsedText {
  if (Buffer.byteLength(text) > composeAtMost)
    throw new InvalidInput(422, [{ pointer, message: `is larger than ${composeAtMost / 1024} KiB` }])
  const lines = new LineCounter()
  const document = compose(text, lines)
  const line = (offset: number): number => lines.linePos(offset).line
  const [error] = document.errors
  if (error) throw new InvalidInput(422, [errorAt(line(error.pos[0]), `is not YAML: ${error.message}`)])
  try {
    const value: unknown = document.toJS({ maxAliasCount: aliasesAtMost })
    return { value, lineOf: (path) => line(offsetOf(document, path)) }
  } catch (fault) {
    if (!(fault instanceof ReferenceError)) throw fault
    throw new InvalidInput(422, [errorAt(1, 'its aliases expand to too much')])
  }
}

/** `0440`, as Docker Compose reads it; YAML 1.2 has only `0o440`. */
const octal: ScalarTag = {
  tag: 'tag:yaml.org,2002:int',
  default: true,
  test: /^[-+]?0[0-7]+$/,
  resolve: (digits) => Number.parseInt(digits, 8),
}

function compose(text: string, lines: LineCounter): Document {
  const tokens = tokensOf(text, lines)
  const composer = new Composer({
    prettyErrors: false,
    merge: true,
    uniqueKeys: true,
    customTags: (tags) => [octal, ...tags],
  })
  const [document, second] = [...composer.compose(tokens, true, text.length)]
  if (!document || second) throw new InvalidInput(422, [errorAt(1, 'must be one YAML document')])
  return document
}

/** Stops at the limits: what the parser takes for deep texts grows with its square, and the composer recurses. */
function tokensOf(text: string, lines: LineCounter): CST.Token[] {
  const parser = new Parser(lines.addNewLine)
  const tokens: CST.Token[] = []
  lines.addNewLine(0)
  let count = 0
  for (const lexeme of new Lexer().lex(text)) {
    if (++count > tokensAtMost)
      throw new InvalidInput(422, [
        errorAt(lines.lineStarts.length, `has more than ${tokensAtMost} keys, values and marks`),
      ])
    tokens.push(...parser.next(lexeme))
    if (parser.stack.length > deepest + aroundEach)
      throw new InvalidInput(422, [errorAt(lines.lineStarts.length, `nests more than ${deepest} deep`)])
  }
  return [...tokens, ...parser.end()]
}

/** Where a path begins: at its key, also if the key came by an alias or a merge. */
function offsetOf(document: Document, path: Path): number {
  let node: Node | null = document.contents
  let offset = node?.range?.[0] ?? 0
  for (const step of path) {
    const found: Found | null = within(document, node, step)
    if (!found) break
    offset = found.offset
    node = found.node
  }
  return offset
}

interface Found {
  offset: number
  node: Node | null
}

function within(document: Document, from: Node | null, step: string | number): Found | null {
  const node = isAlias(from) ? (from.resolve(document) ?? null) : from
  if (isSeq(node)) {
    const item = node.items[Number(step)] as Node | undefined
    return item ? { offset: item.range?.[0] ?? 0, node: item } : null
  }
  if (!isMap(node)) return null
  for (const { key, value } of node.items) {
    const { value: name, range } = key as { value?: unknown; range?: [number, number, number] }
    if (String(name) === String(step)) return { offset: range?.[0] ?? 0, node: value as Node | null }
  }
  for (const { key, value } of node.items) {
    if ((key as { source?: string }).source !== '<<') continue
    const sources = isSeq(value) ? (value.items as Node[]) : [value as Node]
    for (const source of sources) {
      const found = within(document, source, step)
      if (found) return found
    }
  }
  return null
}
