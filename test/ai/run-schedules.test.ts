import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { AiRun } from '../../models/ai/runs.ts'
import { AiSchedule, beginDueRun } from '../../models/ai/run-schedules.ts'
import { insertDeployment } from '../support/ai/inserted-runs.ts'
import { specOf } from '../support/ai/specs.ts'
import { aiWorkflowsOf } from '../support/clients/ai-workflows.ts'
import { eventually } from '../support/eventually.ts'
import { mistakeAt } from '../support/refusals.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'

// Runs at the times of a schedule. The deployment has no container, so that they stay open.

let tenant: TestTenant
let workflows: ReturnType<typeof aiWorkflowsOf>
let id: string
beforeAll(async () => {
  tenant = await makeTenant()
  workflows = aiWorkflowsOf(tenant.owner)
  const say = { kind: 'template', value: '${input.text}' }
  id = (await workflows.published(specOf({ say }, { models: {}, budget: { wall_sec: 600 } }))).id
})
afterAll(removeTenants)

const fields = { frequency: '0 3 1 1 *', timezone: 'Europe/Oslo', input: { text: 'good morning' } }
const shown = async () => (await workflows.get(id))['schedule'] as Record<string, unknown>
/** Makes the schedule due, and resolves with what it shows when a worker has seen to it. */
async function fallDue(at = new Date()): Promise<Record<string, unknown>> {
  await AiSchedule.updateOne({ _id: id, tenant_id: tenant.id }, { $set: { next_at: at } })
  return eventually(async () => {
    const schedule = await shown()
    return (schedule['last'] as { due_at?: string } | null)?.due_at === at.toISOString() && schedule
  })
}
const runsOf = () =>
  AiRun.find({ tenant_id: tenant.id, workflow_id: id, trigger: 'schedule' }).sort({ _id: 1 }).lean()

test('a schedule runs its workflow at each due time once, says why it skips one, and ends with its workflow', async () => {
  const set = await workflows.setSchedule(id, fields)
  expect(set).toMatchObject({
    status: 200,
    body: { ...fields, overlaps: false, canary_key: null, last: null },
  })
  expect(String(set.body['next_at'])).toMatch(/-01-01T02:00:00/)
  expect(await shown()).toEqual(set.body)

  expect((await fallDue())['last']).toMatchObject({ run_id: null, skipped: { code: 'not_deployed' } })
  await insertDeployment(tenant.id, id)
  const { last, next_at } = await fallDue()
  const [run] = await runsOf()
  expect([last, next_at]).toMatchObject([{ run_id: run?._id, skipped: null }, set.body['next_at']])
  expect(await workflows.getRun(id, run?._id ?? '')).toMatchObject({
    trigger: 'schedule',
    input: fields.input,
    requested_by: null,
  })

  expect((await fallDue())['last']).toMatchObject({ run_id: null, skipped: { code: 'run_open' } })
  // It was skipped, and the run is open still.
  expect((await fallDue())['last']).toMatchObject({ run_id: null, skipped: { code: 'run_open' } })
  await workflows.setSchedule(id, { ...fields, overlaps: true, input: { text: 7 } })
  expect((await fallDue())['last']).toMatchObject({
    skipped: { code: 'invalid_input', message: expect.stringContaining('/input/text') },
  })
  await workflows.setSchedule(id, { ...fields, overlaps: true })
  const hourAgo = new Date(Date.now() - 3_600_000)
  expect((await fallDue(hourAgo))['last']).toMatchObject({ skipped: { code: 'too_late' } })
  expect(await runsOf()).toHaveLength(1)

  // Workers that see it at once, of which one was killed before it said so.
  const next = new Date()
  await AiSchedule.updateOne({ _id: id, tenant_id: tenant.id }, { $set: { next_at: next } })
  const due = { _id: id, tenant_id: tenant.id, next_at: next }
  await Promise.all([beginDueRun(due), beginDueRun(due), beginDueRun(due)])
  await beginDueRun(due)
  expect(await runsOf()).toHaveLength(2)

  await (await workflows.undeploy(id)).operation.success()
  expect(await workflows.delete(id)).toMatchObject({ status: 204 })
  expect(await AiSchedule.countDocuments({ tenant_id: tenant.id })).toBe(0)
})

test('a schedule is refused what is none, and is set and ended by who may', async () => {
  const { id: other } = await workflows.make()
  for (const [wrong, pointer] of [
    [{ frequency: '61 * * * *' }, '/frequency'],
    [{ timezone: 'Nowhere/Else' }, '/timezone'],
    [{ input: Array.from({ length: 70 }).reduce((inner) => [inner], 1 as unknown) }, '/input'],
  ] as const)
    expect(await workflows.setSchedule(other, { ...fields, ...wrong })).toMatchObject(mistakeAt(pointer))
  const viewer = aiWorkflowsOf(await tenant.user('viewer'))
  const stranger = aiWorkflowsOf((await makeTenant()).owner)
  expect(await viewer.setSchedule(other, fields)).toMatchObject({ status: 403 })
  expect(await stranger.setSchedule(other, fields)).toMatchObject({ status: 404 })
  expect(await workflows.endSchedule(other)).toMatchObject({ status: 404 })
  await workflows.setSchedule(other, fields)
  expect(await viewer.endSchedule(other)).toMatchObject({ status: 403 })
  expect(await stranger.endSchedule(other)).toMatchObject({ status: 404 })
  expect(await workflows.endSchedule(other)).toMatchObject({ status: 204 })
  expect((await workflows.get(other))['schedule']).toBeNull()
})
