import { bounds } from './bounds.ts'

// Texts with expressions in them: `Hello ${input.name}`. `$${` stands for `${`.

/** A piece of a text: as it is, or the source of an expression. */
export type Part = string | { expression: string }

/** The text cannot be split into its parts. */
export class TemplateInvalid extends Error {
  override readonly name = 'TemplateInvalid'
}

/** Throws TemplateInvalid. Takes time in proportion to the text. */
export function partsOf(text: string): Part[] {
  if (text.length > bounds.templateChars) {
    throw new TemplateInvalid(`has more than ${bounds.templateChars} characters`)
  }
  const parts: Part[] = []
  let literal = ''
  let at = 0
  while (at < text.length) {
    const found = text.indexOf('${', at)
    if (found < 0) break
    if (found > at && text[found - 1] === '$') {
      literal += `${text.slice(at, found - 1)}\${`
      at = found + 2
      continue
    }
    literal += text.slice(at, found)
    if (literal) parts.push(literal)
    literal = ''
    const end = endOfExpression(text, found + 2)
    parts.push({ expression: text.slice(found + 2, end) })
    at = end + 1
  }
  literal += text.slice(at)
  if (literal || parts.length === 0) parts.push(literal)
  return parts
}

/** The expression, if the text is one expression and nothing else: then it keeps the type of its value. */
export function onlyExpression(parts: readonly Part[]): string | null {
  const [part, ...others] = parts
  return others.length === 0 && typeof part === 'object' ? part.expression : null
}

/** Where the brace stands that ends an expression: braces of maps, strings and comments are within it. */
function endOfExpression(text: string, start: number): number {
  let open = 0
  for (let at = start; at < text.length; at++) {
    const character = text[at]
    if (character === '"' || character === "'") at = endOfString(text, at)
    else if (character === '/' && text[at + 1] === '/') at = endOfLine(text, at)
    else if (character === '{') open++
    else if (character === '}' && open-- === 0) return at
  }
  throw new TemplateInvalid('has an expression without an end: `${` needs a `}`')
}

function endOfString(text: string, start: number): number {
  const quote = text.charAt(start)
  const isTriple = text.startsWith(quote.repeat(3), start)
  const end = isTriple ? quote.repeat(3) : quote
  for (let at = start + end.length; at < text.length; at++) {
    if (text[at] === '\\') at++
    else if (text.startsWith(end, at)) return at + end.length - 1
  }
  throw new TemplateInvalid('has an expression with a string without an end')
}

function endOfLine(text: string, start: number): number {
  const end = text.indexOf('\n', start)
  return end < 0 ? text.length : end
}

/** Calls `visit` with each text of a JSON value and its JSON pointer. Names of fields are not templates. */
export function eachText(
  value: unknown,
  pointer: string,
  visit: (text: string, pointer: string) => void,
): void {
  if (typeof value === 'string') return visit(value, pointer)
  if (typeof value !== 'object' || value === null) return
  for (const [name, inner] of Object.entries(value)) eachText(inner, pointerTo(pointer, name), visit)
}

/** RFC 6901. */
export const pointerTo = (pointer: string, ...names: (string | number)[]): string =>
  [pointer, ...names.map((name) => String(name).replaceAll('~', '~0').replaceAll('/', '~1'))].join('/')
