/** Runs `onEnd` after so many ms, without those for which it was paused. It runs from its beginning on. */
export class Clock {
  readonly #onEnd: () => void
  #leftMs: number
  #since = 0
  #timer: NodeJS.Timeout | null = null
  #isStopped = false

  constructor(ms: number, onEnd: () => void) {
    this.#onEnd = onEnd
    this.#leftMs = ms
    this.goOn()
  }

  pause(): void {
    if (!this.#timer) return
    clearTimeout(this.#timer)
    this.#timer = null
    this.#leftMs -= performance.now() - this.#since
  }

  goOn(): void {
    if (this.#timer || this.#isStopped) return
    this.#since = performance.now()
    this.#timer = setTimeout(this.#onEnd, this.#leftMs)
  }

  /** For good. */
  stop(): void {
    this.pause()
    this.#isStopped = true
  }
}
