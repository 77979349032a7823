import { setTimeout as delay } from 'node:timers/promises'
import { type Row, timed } from './measure.ts'
import { isEnded, rssMib, type Stack } from './stack.ts'

const rounds = 5

/** Seconds from a killed role's restart to the end of the interrupted create. */
export async function recovery(stack: Stack): Promise<Row[]> {
  const rows: Row[] = []
  for (const role of ['worker', 'host']) {
    const figures: number[] = []
    for (let round = 0; round < rounds; round++) {
      const body = {
        name: `bench-recovery-${role}-${round}`,
        image: 'busybox',
        command: ['sleep', '3600'],
        cpu_cores: 0.1,
        memory_mib: 16,
      }
      const accepted = await stack.request<{ id: string }>('POST', '/api/v1/containers', body)
      const location = String(accepted.headers['operation-location'])
      await running(stack, location)
      await stack.role('kill', role)
      const ms = await timed(async () => {
        await stack.role('start', role)
        await ended(stack, location)
      })
      figures.push(ms / 1000)
      await stack.finish('DELETE', `/api/v1/containers/${accepted.body.id}`)
    }
    rows.push({ what: `${role} restarted after kill -9, to the operation's end`, unit: 's', figures })
  }
  return rows
}

async function running(stack: Stack, location: string): Promise<void> {
  for (;;) {
    const { body } = await stack.request<{ state: string }>('GET', location)
    if (body.state !== 'pending') return
  }
}

async function ended(stack: Stack, location: string): Promise<void> {
  for (;;) {
    const { body } = await stack.request<{ state: string }>('GET', `${location}?wait=30`)
    if (body.state === 'succeeded') return
    if (isEnded(body)) throw new Error(`the operation ${body.state}`)
  }
}

/** The roles free what their start leaves in memory 15 s after it (lib/start-memory.ts). */
const atRestAfterMs = 30_000

/** Resident memory of each of our roles when idle. */
export async function idleMemory(stack: Stack): Promise<Row[]> {
  await delay(atRestAfterMs)
  const pids = await stack.pids()
  const roles = ['api', 'worker', 'host'].map((role) => ({ role, mib: rssMib(pids[role] ?? 0) }))
  return [
    ...roles.map(({ role, mib }) => ({ what: `idle memory of ${role}`, unit: 'MiB', figures: [mib] })),
    { what: 'together', unit: 'MiB', figures: [roles.reduce((sum, { mib }) => sum + mib, 0)], note: '< 600' },
  ]
}
