import type { ThingOnHost } from '../../lib/host-protocol.ts'

/**
 * What a host has of one sort of thing: what it does for workflows, reports, keeps in order by itself, and brings to what the
 * platform wants. A new sort is one more part in the list of worker/host.ts, and one more observer in
 * models/compute/observe.ts.
 */
export interface HostPart {
  /** Under this name the platform says which version of its state is wanted. */
  readonly name: string
  /** The kinds of its things in reports. */
  readonly kinds?: readonly string[]
  /** What it does for workflows. */
  readonly activities?: object
  /** All its things that are here. Asked for each report, so it must not ask the engine for what has not changed. */
  observe?(): Promise<ThingOnHost[]>
  /** Calls back at each change that the next report should tell at once, until aborted. */
  watch?(onChange: () => void, signal: AbortSignal): Promise<void>
  /** Called once all parts have observed, also while the API cannot be reached. */
  observed?(): void
  /** Removes things of the last report that are no longer this host's. Does not wait, and tries again when it is told again. */
  remove?(ids: string[]): void
  /** What is wanted of its things one by one, as of the last report. Does not wait. */
  bringAbout?(things: ThingOnHost[]): void
  /** The version that is here; null while it is not known. */
  version?(): string | null
  /** Asks for the whole of what is wanted, and brings the host to it. Called when the wanted version is another one. */
  applyWanted?(): Promise<unknown>
  /** What it sees to by itself, until aborted. */
  keep?(signal: AbortSignal): Promise<unknown>
  /** Lets go of what runs on without this program. */
  close?(): Promise<void>
}

export const activitiesOf = (parts: HostPart[]): object =>
  Object.assign({}, ...parts.map(({ activities = {} }) => activities))
