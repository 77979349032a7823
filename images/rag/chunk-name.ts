import { createHash } from 'node:crypto'

/** Names a chunk by its number and its text: the number of a removed chunk may be given to another one. */
export const chunkName = (id: number, text: string): string =>
  `${id}-${createHash('sha256').update(text).digest('hex').slice(0, 32)}`

export const idInName = (name: string): number => Number.parseInt(name, 10)
