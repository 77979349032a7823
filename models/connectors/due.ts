import type { ConnectorDocument } from './connectors.ts'

const secMs = 1_000
const minuteMs = 60 * secMs
/** A provider that did not answer is asked again after this. */
export const againMs = 5 * minuteMs
/** A token is refreshed this long before its end, or in the last quarter of a short life. */
const aheadMs = 10 * minuteMs

/** When a worker looks at a connector next: to refresh it, to see that it has ended, or to check it. */
export function dueAt(
  { status, refreshable, expires_at }: Pick<ConnectorDocument, 'status' | 'refreshable' | 'expires_at'>,
  now = new Date(),
): Date | null {
  if (expires_at && refreshable) {
    const left = Math.max(0, expires_at.getTime() - now.getTime())
    return new Date(expires_at.getTime() - Math.min(aheadMs, left / 4))
  }
  if (status === 'unchecked') return new Date(now.getTime() + againMs)
  return expires_at
}
