/** Numbers from 0 to 1, the same for the same seed (mulberry32). */
export function randomOf(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

/** Random choices, repeatable by their seed. */
export class Dice {
  readonly #random: () => number

  constructor(seed: number) {
    this.#random = randomOf(seed)
  }

  /** 0 to `below` - 1. */
  number(below: number): number {
    return Math.floor(this.#random() * below)
  }

  chance(share: number): boolean {
    return this.#random() < share
  }

  /** Throws if the list is empty. */
  one<T>(of: readonly T[]): T {
    const chosen = of[this.number(of.length)]
    if (chosen === undefined) throw new Error('nothing to choose from')
    return chosen
  }

  shuffled<T>(of: readonly T[]): T[] {
    return of
      .map((item) => ({ item, at: this.#random() }))
      .toSorted((a, b) => a.at - b.at)
      .map(({ item }) => item)
  }
}
