import { connectDatabase, disconnectDatabase } from '../../models/database.ts'
import '../../models/index.ts'
import { newId } from '../../lib/ids.ts'
import { recount } from '../../models/counters.ts'
import { Operation } from '../../models/operations.ts'
import { quantile, type Row, timed } from './measure.ts'
import type { Stack } from './stack.ts'

const documents = 100_000
const asks = 200

/** The first page of a tenant's 100,000 operations. */
export async function lists(stack: Stack): Promise<Row[]> {
  const { body: account } = await stack.request<{ tenant_id: string }>('GET', '/api/v1/account')
  await connectDatabase({
    KEELSON_MONGODB_URL: stack.mongodbUrl,
    KEELSON_MASTER_KEY_FILE: stack.masterKeyFile,
  })
  try {
    for (let made = 0; made < documents; made += 1_000) {
      await Operation.collection.insertMany(
        Array.from({ length: 1_000 }, () => ended(account.tenant_id)) as never,
      )
    }
    await recount(Operation, account.tenant_id)
    const page: number[] = []
    for (let ask = 0; ask < asks; ask++)
      page.push(await timed(() => stack.request('GET', '/api/v1/operations')))
    return [
      { what: 'page 1 of 100,000 rows, p50', unit: 'ms', figures: [quantile(page, 0.5)], note: '< 10' },
      { what: 'page 1 of 100,000 rows, p99', unit: 'ms', figures: [quantile(page, 0.99)] },
    ]
  } finally {
    await Operation.collection.deleteMany({ resource_name: 'bench-lists' })
    await recount(Operation, account.tenant_id)
    await disconnectDatabase()
  }
}

const ended = (tenant_id: string) => {
  const _id = newId()
  const now = new Date()
  return {
    _id,
    tenant_id,
    resource_kind: 'container',
    resource_id: newId(),
    resource_name: 'bench-lists',
    verb: 'create',
    input: {},
    state: 'succeeded',
    workflow_id: `container-create-${_id}`,
    supersedes: null,
    requested_by: null,
    cancel_requested_at: null,
    before: {},
    step: null,
    error: null,
    started_at: now,
    ended_at: now,
    created_at: now,
    updated_at: now,
  }
}
