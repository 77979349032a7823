import type { ThingOnHost } from '../../lib/host-protocol.ts'

/**
 * A part of the host for one sort of resource: its activities, reports, repairs, and reconciliation with the platform.
 * To add a part, list it in worker/host.ts and add an observer in models/compute/observe.ts.
 */
export interface HostPart {
  /** The platform sends the wanted version under this name. */
  readonly name: string
  /** The kinds of its things in reports. */
  readonly kinds?: readonly string[]
  /** Its activities for workflows. */
  readonly activities?: object
  /**
   * Returns all its things on this host. Called for each report, so it must not ask the engine about unchanged things.
   */
  observe?(): Promise<ThingOnHost[]>
  /** Calls back at each change that needs an immediate report, until aborted. */
  watch?(onChange: () => void, signal: AbortSignal): Promise<void>
  /** Called after all parts have observed, even if the API cannot be reached. */
  observed?(): void
  /** Removes things that no longer belong to this host. Does not wait; the next report retries. */
  remove?(ids: string[]): void
  /** Takes the wanted state of single things from the last report. Does not wait. */
  bringAbout?(things: ThingOnHost[]): void
  /** The version applied on this host; null if unknown. */
  version?(): string | null
  /** Fetches the complete wanted state and applies it. Called when the wanted version differs. */
  applyWanted?(): Promise<unknown>
  /** Its background work, until aborted. */
  keep?(signal: AbortSignal): Promise<unknown>
  /** Disconnects from what keeps running without this process. */
  close?(): Promise<void>
}

export const activitiesOf = (parts: HostPart[]): object =>
  Object.assign({}, ...parts.map(({ activities = {} }) => activities))
