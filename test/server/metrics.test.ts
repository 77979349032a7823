import { describe, expect, test } from '@jest/globals'
import { metricsPort } from '../../script/lib/roles.ts'
import { newId } from '../../lib/ids.ts'
import { insertDeployment } from '../support/ai/inserted-runs.ts'
import { specOf } from '../support/ai/specs.ts'
import { aiWorkflowsOf } from '../support/clients/ai-workflows.ts'
import { eventually } from '../support/eventually.ts'
import '../support/exclusive.ts'
import { hasMore, writer } from '../support/log-archive.ts'
import { layout } from '../support/stack.ts'
import { makeTenant } from '../support/tenants.ts'

// The metrics that Prometheus reads from each role.

const roles = ['api', 'worker', 'host'] as const
type Role = (typeof roles)[number]

const scrape = async (role: Role, path = '/metrics'): Promise<Response> =>
  fetch(`http://127.0.0.1:${metricsPort(layout, role, 0)}${path}`)

/** The sum over all samples of this name with these labels. */
async function sum(role: Role, name: string, labels: Record<string, string> = {}): Promise<number> {
  const text = await (await scrape(role)).text()
  const wanted = Object.entries(labels).map(([label, value]) => `${label}="${value}"`)
  const samples = text.split('\n').filter((line) => line.startsWith(`${name}{`))
  return samples
    .filter((line) => wanted.every((label) => line.includes(label)))
    .reduce((all, line) => all + Number(line.slice(line.lastIndexOf(' ') + 1)), 0)
}

describe.each(roles)('the %s', (role) => {
  test('serves metrics of its process in Prometheus’ format', async () => {
    const answer = await scrape(role)
    expect(answer.status).toBe(200)
    expect(answer.headers.get('content-type')).toMatch(/^text\/plain; version=0\.0\.4/)
    const text = await answer.text()
    for (const line of text.split('\n').filter(Boolean))
      expect(line).toMatch(/^(# (HELP|TYPE) \w+ .*|\w+(\{(\w+="[^"\n]*",?)*\})? (-?[\d.e+-]+|NaN|\+Inf))$/)
    expect(text).toContain(`process_resident_memory_bytes{role="${role}"}`)
    expect(await sum(role, 'process_resident_memory_bytes')).toBeGreaterThan(10 * 2 ** 20)
  })

  test('serves nothing else on that port', async () => {
    expect((await scrape(role, '/')).status).toBe(404)
    expect((await scrape(role, '/api/v1/containers')).status).toBe(404)
  })
})

test('metrics count requests, operations, runs, steps, instances and archived output, without tenants', async () => {
  const counts = async () => ({
    requests: await sum('api', 'keelson_http_request_duration_seconds_count', {
      operation: 'POST /api/v1/containers',
      status: '202',
    }),
    accepted: await sum('api', 'keelson_operations_accepted_total', { kind: 'container', verb: 'create' }),
    ended: await sum('worker', 'keelson_operation_duration_seconds_count', {
      kind: 'container',
      verb: 'create',
      state: 'succeeded',
    }),
    decided: await sum('worker', 'keelson_activity_duration_seconds_count', {
      activity: 'placeInstance',
      outcome: 'completed',
    }),
    ran: await sum('host', 'keelson_activity_duration_seconds_count', { activity: 'runContainerOnHost' }),
    cancelled: await sum('worker', 'keelson_ai_run_duration_seconds_count', {
      trigger: 'manual',
      status: 'cancelled',
    }),
    running: await sum('host', 'keelson_instances', { state: 'running' }),
    pieces: await sum('host', 'keelson_log_archived_pieces_total'),
    bytes: await sum('host', 'keelson_log_archived_bytes_total'),
  })
  const before = await counts()
  const tenant = await makeTenant()
  const { id } = await tenant.containers.make(writer(20_000, 'sleep 600'))
  await hasMore(id, 0)
  const workflows = aiWorkflowsOf(tenant.owner)
  const say = { kind: 'template', value: 'hello' }
  const { id: workflow } = await workflows.published(specOf({ say }, { models: {} }))
  await insertDeployment(tenant.id, workflow)
  const run = await workflows.run(workflow, { text: 'hello' })
  await workflows.askCancel(workflow, run.id)
  await workflows.endOfRun(workflow, run.id)
  await eventually(async () => (await counts()).running > before.running)
  await eventually(async () => (await counts()).pieces > before.pieces)
  const after = await counts()
  for (const name of ['requests', 'accepted', 'ended', 'decided', 'ran', 'cancelled'] as const)
    expect([name, after[name]]).toEqual([name, before[name] + 1])
  expect(after.bytes - before.bytes).toBeGreaterThan(2 ** 19)

  expect(await sum('worker', 'keelson_operations_waiting')).toBe(0)
  await eventually(async () => (await sum('host', 'keelson_log_lag_seconds')) === 0)
  await tenant.owner.ask('GET', `/api/v1/containers/${newId()}`)
  for (const role of roles) {
    const text = await (await scrape(role)).text()
    for (const secret of [id, tenant.id, tenant.owner.token]) expect(text).not.toContain(secret)
    expect(text).not.toMatch(/[0-9a-f]{8}-[0-9a-f]{4}-7/)
  }
})
