import { processesWith } from '../../drivers/system/programs.ts'
import type { Json } from './client.ts'
import { openConsole } from './console.ts'
import { eventually } from './eventually.ts'
import type { TestTenant } from './tenants.ts'

// MicroVMs and VMs seen from inside, through the API, and from their host, without the platform.

/** The guest processes with this id on this machine, found by their arguments, not in our database. */
export const guests = async (id: string): Promise<number[]> =>
  (await processesWith(id)).filter(({ args }) => args[0]?.includes('qemu-system')).map(({ pid }) => pid)

export interface LogEntry {
  time: string
  stream: string
  line: string
}

/** Its log. */
export async function linesOf({ owner }: TestTenant, id: string, plural = 'microvms'): Promise<LogEntry[]> {
  const { body } = await owner.ask('GET', `/api/v1/${plural}/${id}/logs`)
  return String(body['text'])
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line) as LogEntry)
}

/** Runs a script in the guest; returns its output and exit code. */
export async function runIn(
  tenant: TestTenant,
  id: string,
  script: string,
  plural = 'microvms',
): Promise<{ output: string; code: number }> {
  const query = `?${new URLSearchParams([
    ['command', 'sh'],
    ['command', '-c'],
    ['command', script],
  ]).toString()}`
  const terminal = await openConsole(id, { token: tenant.owner.token, plural, query })
  const { code: closed, reason } = await terminal.closed
  if (closed !== 1000) throw new Error(`${script}: ${closed} ${reason}`)
  const code = Number(/^exit code (\d+)$/.exec(reason)?.[1] ?? -1)
  return { output: terminal.text.replaceAll('\r\n', '\n').trimEnd(), code }
}

/** The output of a script, which must succeed. */
export async function outputOf(
  tenant: TestTenant,
  id: string,
  script: string,
  plural = 'microvms',
): Promise<string> {
  const { output, code } = await runIn(tenant, id, script, plural)
  if (code !== 0) throw new Error(`${script}: exit code ${code}: ${output}`)
  return output
}

/** Counts a few times a second for as long as it lives. Each number is synced to disk before it is printed. */
export const counter: Json = {
  command: [
    'sh',
    '-c',
    'n=$(cat /count 2>/dev/null || echo 0); while :; do n=$((n+1)); echo $n >/new; sync /new; mv /new /count; sync /; echo $n; sleep 0.2; done',
  ],
}

/** The numbers that a counter has printed. */
export const countedBy = async (tenant: TestTenant, id: string): Promise<number[]> =>
  (await linesOf(tenant, id)).filter(({ stream }) => stream === 'stdout').map(({ line }) => Number(line))

/** Waits until the counter has printed this many more numbers; returns all its numbers. */
export async function countsOn(tenant: TestTenant, id: string, by = 3): Promise<number[]> {
  const before = (await countedBy(tenant, id)).length
  return eventually(async () => {
    const numbers = await countedBy(tenant, id)
    return numbers.length >= before + by && numbers
  })
}

/** 1, 2, 3, … without a gap. */
export const inSequence = (numbers: number[]): number[] => numbers.map((_, i) => i + 1)

export const bootId = (tenant: TestTenant, id: string): Promise<string> =>
  outputOf(tenant, id, 'cat /proc/sys/kernel/random/boot_id')

/** The minimum difference in ms between its clock and this machine's, without the time of the request. */
export async function clockOff(tenant: TestTenant, id: string): Promise<number> {
  const before = Date.now()
  const [sec = 0, usec = 0] = (await outputOf(tenant, id, readClock)).split(' ').map(Number)
  const after = Date.now()
  const shown = sec * 1000 + usec / 1000
  return Math.max(0, before - shown, shown - after)
}

const readClock = "adjtimex | awk '/tv_sec/{sec=$2} /tv_usec/{usec=$2} END{print sec, usec}'"

/** kill -9 of QEMU itself, which may have ended already. */
export async function killProcesses(id: string): Promise<void> {
  for (const pid of await guests(id)) {
    try {
      process.kill(pid, 'SIGKILL')
    } catch {
      // The process had already ended.
    }
  }
}
