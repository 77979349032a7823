import { setTimeout as delay } from 'node:timers/promises'
import type { HealthCheck } from '../containers.ts'
import type { MachineHost } from './host.ts'
import type { Link } from './links.ts'
import type { Health } from './records.ts'
import { openMachineTerminal } from './terminals.ts'

// Health checks like the Docker Engine's: run a command periodically in the machine and count failures. Results are in
// the record, so that a new worker continues the count.

/** Checks a machine's health while this connection lasts; the check does not change in that time. */
export async function keepChecking(host: MachineHost, id: string, link: Link): Promise<void> {
  const check = (await host.record(id))?.spec.health_check
  if (!check) return
  const ending = new AbortController()
  void link.closed.then(() => ending.abort())
  const { signal } = ending
  let checked: number | null = null
  let countsFrom = 0
  while (!signal.aborted) {
    await delay(check.interval_sec * 1000, undefined, { signal }).catch(() => undefined)
    const status = link.status
    // One that stands still, since its host has no room for its writes, answers nothing.
    if (signal.aborted || status?.phase !== 'running' || link.full.size > 0) continue
    const record = await host.record(id)
    if (!record) return
    if (checked !== status.restarts) {
      // If an earlier worker saw the start, take its time from the record.
      const isFirst = checked === null && record.started_at !== null
      const begun = isFirst ? Date.parse(record.started_at ?? '') : Date.now()
      countsFrom = begun + check.start_period_sec * 1000
      checked = status.restarts
    }
    const begun = Date.now()
    const passed = await passes(link, check)
    // Ignore the result if the command has ended or restarted since.
    if (signal.aborted || link.status?.restarts !== checked) continue
    await note(
      host,
      id,
      after(record.health, { passed, counts: begun >= countsFrom, restarts: checked }, check),
    )
  }
}

/** The health after one more check. */
function after(
  before: Health | null,
  { passed, counts, restarts }: { passed: boolean; counts: boolean; restarts: number },
  { retries }: HealthCheck,
): Health {
  const { status, failures } =
    before?.restarts === restarts ? before : { status: 'starting' as const, failures: 0 }
  if (passed) return { status: 'healthy', failures: 0, restarts }
  if (!counts && status === 'starting') return { status, failures: 0, restarts }
  const now = failures + 1
  return { status: now >= retries ? 'unhealthy' : status, failures: now, restarts }
}

async function note(host: MachineHost, id: string, health: Health): Promise<void> {
  const before = (await host.record(id))?.health ?? null
  if (JSON.stringify(before) === JSON.stringify(health)) return
  await host.note(id, { health })
  if (before?.status !== health.status) host.changed(id)
}

const size = { cols: 80, rows: 24 }

/** Whether the command ends with 0 in time. Its output is discarded. */
async function passes(link: Link, { command, timeout_sec }: HealthCheck): Promise<boolean> {
  const timeoutMs = timeout_sec * 1000
  const late = new AbortController()
  const tooLate = delay(timeoutMs, false, { signal: late.signal }).catch(() => false)
  const run = async (): Promise<boolean> => {
    const terminal = await openMachineTerminal(await link.answering(timeoutMs), command, size)
    terminal.stream.resume()
    void tooLate.then(() => terminal.close())
    return (await terminal.exitCode()) === 0
  }
  const passed = run().catch(() => false)
  try {
    return await Promise.race([passed, tooLate])
  } finally {
    late.abort()
  }
}
