/** The platform refused a request of a host or a runner (`status`), or did not answer (no status). */
export class PlatformFault extends Error {
  override readonly name = 'PlatformFault'
  readonly code: string
  readonly permanent: boolean
  readonly status: number | null

  constructor(status: number | null, code: string, message: string, cause?: unknown) {
    super(message, { cause })
    this.status = status
    this.code = code
    // A 401 may come from a wrong clock, which can be corrected.
    this.permanent = status !== null && status < 500 && ![401, 408, 429].includes(status)
  }
}
