/** Markdown with so many sections, each a chunk of its own with a word that no other has. */
export const sectioned = (count: number): string =>
  Array.from({ length: count }, (_, index) => section(index)).join('\n')

const section = (index: number): string =>
  `# Part ${index}\n\nThe word of this part is ${wordOf(index)}, and it says nothing else.\n`

/** The word of a section, in letters alone. */
export const wordOf = (index: number): string =>
  `zq${index.toString(26).replaceAll(/./g, (digit) => String.fromCharCode(97 + Number.parseInt(digit, 26)))}x`
