// The stages of a probe, in the order in which they are passed, and why each may fail.

export const stageNames = [
  'config',
  'credential',
  'policy',
  'dns',
  'connect',
  'tls',
  'http',
  'auth',
  'initialize',
  'list',
] as const
export type StageName = (typeof stageNames)[number]

export interface Stage {
  stage: StageName
  /** `skipped`: it was not needed, as TLS for `http:`, or an earlier one failed. */
  status: 'ok' | 'failed' | 'skipped'
  duration_ms: number
}

/** Why a probe failed. Nothing in it comes from the other side unless its secrets were taken out. */
export interface Fault {
  stage: StageName
  /** Stable, for programs. */
  reason: string
  cause: string
  remedy: string
  /** Of a server that wants a login and says where. */
  authorization_servers?: string[]
}

export class ProbeFailed extends Error {
  override readonly name = 'ProbeFailed'
  readonly fault: Fault

  constructor(fault: Fault, options?: ErrorOptions) {
    super(`${fault.stage}: ${fault.cause}`, options)
    this.fault = fault
  }
}

/** What a probe has passed, and how long each stage took. */
export class Stages {
  readonly #spent = new Map<StageName, number>()

  /** Times the work of a stage. Throws what it throws; the time counts nonetheless. */
  async run<T>(stage: StageName, work: () => Promise<T> | T): Promise<T> {
    const begun = performance.now()
    try {
      return await work()
    } finally {
      this.set(stage, performance.now() - begun)
    }
  }

  /** In ms; 0 for a stage that was not passed. */
  spent(stage: StageName): number {
    return this.#spent.get(stage) ?? 0
  }

  set(stage: StageName, ms: number): void {
    this.#spent.set(stage, ms)
  }

  /** `failed`: the stage that failed. What follows it is skipped, whatever was measured there. */
  list(names: readonly StageName[], failed: StageName | null = null): Stage[] {
    const last = failed === null ? names.length : names.indexOf(failed)
    return names.map((stage, i) => {
      const ms = i <= last ? this.#spent.get(stage) : undefined
      const status = stage === failed ? 'failed' : ms === undefined ? 'skipped' : 'ok'
      return { stage, status, duration_ms: Math.round((ms ?? 0) * 10) / 10 }
    })
  }
}
