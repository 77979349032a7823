import { newId } from '../../lib/ids.ts'
import { connectDatabase, disconnectDatabase } from '../../models/database.ts'
import { openSession } from '../../models/identity/session-tokens.ts'
import { Tenant } from '../../models/identity/tenants.ts'
import { User } from '../../models/identity/users.ts'
import { median, type Row, timed } from './measure.ts'
import type { As, Stack } from './stack.ts'

const rounds = 10
const requestsAtOnce = 50

/**
 * The time that a tenant's create takes while another tenant's creates wait, beside the time that it takes alone. The
 * other's containers end at once: a machine of 24 GiB has no room for 2,000 that run.
 */
export async function turns(stack: Stack, creates = 2_000): Promise<Row[]> {
  const [busy, other] = await tenants(stack)
  const measured = async (): Promise<number> => {
    let id = ''
    const ms = await timed(async () => (id = await create(other, { command: ['sleep', '3600'] })))
    await other.finish('DELETE', `/api/v1/containers/${id}`)
    return ms
  }
  await measured() // warm-up
  const alone: number[] = []
  for (let round = 0; round < rounds; round++) alone.push(await measured())

  const waits = async (): Promise<number> => {
    const counts = await Promise.all(
      ['pending', 'running'].map(async (state) => {
        const list = `/api/v1/operations?state=${state}&limit=1`
        return (await busy.request<{ total: number }>('GET', list)).body.total
      }),
    )
    return counts.reduce((sum, count) => sum + count, 0)
  }
  let left = creates
  let refused = 0
  const accept = async (): Promise<void> => {
    while (left-- > 0) {
      const body = {
        name: `bench-turns-${newId()}`,
        image: 'busybox',
        command: ['true'],
        restart_policy: 'never',
      }
      const { status } = await busy.request('POST', '/api/v1/containers', {
        ...body,
        cpu_cores: 0.1,
        memory_mib: 16,
      })
      if (status !== 202) refused++
    }
  }
  await Promise.all(Array.from({ length: requestsAtOnce }, accept))
  if (refused) throw new Error(`${refused} creates were refused`)
  const waiting = [await waits()]
  const beside: number[] = []
  while (beside.length < rounds) beside.push(await measured())
  waiting.push(await waits())
  return [
    { what: 'create to running, alone', unit: 'ms', figures: alone },
    { what: `the same, while ${creates} of another tenant wait`, unit: 'ms', figures: beside },
    { what: 'ratio', unit: '', figures: [median(beside) / median(alone)], note: '≤ 2' },
    { what: 'of these, waiting at the begin and at the end', unit: '', figures: waiting },
  ]
}

/** Two tenants, the first with room for all its creates. */
export async function tenants(stack: Stack): Promise<[As, As]> {
  await connectDatabase({
    KEELSON_MONGODB_URL: stack.mongodbUrl,
    KEELSON_MASTER_KEY_FILE: stack.masterKeyFile,
  })
  const make = async (limits: object): Promise<As> => {
    const tenant = await new Tenant({ name: `bench-${newId()}`, limits }).save()
    const fields = {
      tenant_id: tenant._id,
      email: `${newId()}@example.com`,
      password_hash: '-',
      roles: ['owner'],
    }
    const user = await new User(fields).save()
    return stack.as((await openSession(user.toObject())).token)
  }
  try {
    return [await make({ max_cpu_cores: 1_000, max_ram_gib: 1_000 }), await make({})]
  } finally {
    await disconnectDatabase()
  }
}

export async function create(tenant: As, fields: object): Promise<string> {
  const body = { name: `bench-turns-${newId()}`, image: 'busybox', cpu_cores: 0.1, memory_mib: 16, ...fields }
  const { id, state } = await tenant.finish('POST', '/api/v1/containers', body)
  if (state !== 'succeeded') throw new Error(`create ${state}`)
  return id
}
