/** How much is held of the last lines of a log, which are read before the first of them is sent. */
export const lastLinesBytes = 16 * 1024 ** 2

/** Keeps the last of many: at most `count`, and at most `bytes` of them. Drops the oldest. */
export class LastKept<T> {
  #kept: (T | undefined)[] = []
  #first = 0
  #bytes = 0
  #hasDropped = false
  readonly #most: { count: number; bytes: number }
  readonly #sizeOf: (one: T) => number

  constructor(most: { count: number; bytes: number }, sizeOf: (one: T) => number) {
    this.#most = most
    this.#sizeOf = sizeOf
  }

  get count(): number {
    return this.#kept.length - this.#first
  }

  get bytes(): number {
    return this.#bytes
  }

  get hasDropped(): boolean {
    return this.#hasDropped
  }

  add(one: T): void {
    this.#kept.push(one)
    this.#bytes += this.#sizeOf(one)
    while (this.count > this.#most.count || this.#bytes > this.#most.bytes) {
      this.#take()
      this.#hasDropped = true
    }
  }

  /** Takes them out, oldest first. Lets go of each that is taken. */
  *taken(): Generator<T> {
    while (this.count > 0) yield this.#take()
  }

  #take(): T {
    const one = this.#kept[this.#first] as T
    this.#kept[this.#first++] = undefined
    this.#bytes -= this.#sizeOf(one)
    // The places of those that are gone are given up rarely: it copies the others.
    if (this.#first > this.#kept.length / 2) {
      this.#kept = this.#kept.slice(this.#first)
      this.#first = 0
    }
    return one
  }
}
