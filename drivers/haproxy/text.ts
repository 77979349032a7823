import { EngineRefused } from '../errors.ts'

// A configuration is lines of words. Each word is quoted when it is written, so no value can end its word or its line.
// What a word means to HAProxy beyond that (formats, patterns, regexes) is in values.ts.

export type Words = (string | number)[]

export interface Section {
  head: Words
  lines: Words[]
  /** The route that this section is for. */
  route?: string
}

/** Strong quotes: nothing inside is expanded or escaped. Throws EngineRefused for a character outside ASCII's text. */
export function quoted(word: string | number): string {
  const text = String(word)
  if (/^[\w./:,=@-]+$/.test(text)) return text
  if (!/^[\x20-\x7e]*$/.test(text)) throw new EngineRefused('A value has a character that is not allowed')
  return `'${text.replaceAll("'", "'\\''")}'`
}

/** The settings that all sections begin with. */
export const baseDefaults = 'base'

export const lineOf = (words: Words): string => words.map(quoted).join(' ')

const written = new WeakMap<Section, string[]>()

/**
 * The lines of a section, its head first. Rendered once: a route's section is used again at the next change. Throws
 * EngineRefused.
 */
export function linesOf(section: Section): string[] {
  const lines = written.get(section) ?? [
    lineOf(section.head),
    ...section.lines.map((words) => `  ${lineOf(words)}`),
  ]
  written.set(section, lines)
  return lines
}

export interface ConfigText {
  text: string
  /** The route of a line, counted from 1; undefined if it is no route's. */
  routeAt: (line: number) => string | undefined
}

/** `routes`: the routes of lines that stand in a section of something else. */
export function writeSections(sections: Section[], routes: ReadonlyMap<Words, string>): ConfigText {
  const lines: string[] = []
  const owners = new Map<number, string>()
  const add = (line: string, owner: string | undefined): void => {
    lines.push(line)
    if (owner !== undefined) owners.set(lines.length, owner)
  }
  for (const section of sections) {
    const [head = '', ...inside] = linesOf(section)
    add(head, section.route)
    for (const [index, line] of inside.entries())
      add(line, section.route ?? routes.get(section.lines[index] ?? []))
  }
  return { text: `${lines.join('\n')}\n`, routeAt: (line) => owners.get(line) }
}
