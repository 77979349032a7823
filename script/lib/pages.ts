import { readFile } from 'node:fs/promises'

// The documents, as their examples are pasted.

/** A page of docs/, by its name. */
export const pageOf = (name: string): Promise<string> =>
  readFile(new URL(`../../docs/${name}.md`, import.meta.url), 'utf8')

/** Its examples for a shell. */
export const blocksOf = (text: string): string[] =>
  [...text.matchAll(/^```sh\n(.*?)^```$/gms)].map(([, block = '']) => block)
