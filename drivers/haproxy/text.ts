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
  if (!/^[\x20-\x7e]*$/.test(text)) throw new EngineRefused('A value has a character that is not allowed')
  return /^[\w./:,=@-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`
}

const lineOf = (words: Words): string => words.map(quoted).join(' ')

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
  for (const { head, lines: inside, route } of sections) {
    add(lineOf(head), route)
    for (const words of inside) add(`  ${lineOf(words)}`, route ?? routes.get(words))
  }
  return { text: `${lines.join('\n')}\n`, routeAt: (line) => owners.get(line) }
}
