import { beforeAll, describe, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { verifyWebhook, webhookHeaders } from '../../lib/standard-webhooks.ts'
import { AiWebhook, openWebhook } from '../../models/ai/webhooks.ts'
import { removeTenantRecords } from '../../models/identity/tenant-records.ts'
import { aiWorkflowsOf } from '../support/clients/ai-workflows.ts'
import type { Json } from '../support/client.ts'
import { mistakeAt } from '../support/refusals.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// The secrets that sign webhooks to AI workflows.

let tenant: TestTenant
let workflows: ReturnType<typeof aiWorkflowsOf>
beforeAll(async () => {
  tenant = await makeTenant()
  workflows = aiWorkflowsOf(tenant.owner)
})

const notFound = { status: 404, body: { code: 'not_found' } }

/** The newest first. */
const webhookSecretsOf = async (id: string): Promise<string[]> => (await openWebhook(id))?.secrets ?? []

/** Must succeed. */
async function rotate(id: string, body?: Json): Promise<string> {
  const { status, body: answer } = await workflows.rotateWebhook(id, body)
  if (status !== 200) throw new Error(`${status} ${JSON.stringify(answer)}`)
  return String(answer['secret'])
}

/** Whether the workflow takes webhooks that this secret has signed. */
async function isTaken(id: string, secret: string): Promise<boolean> {
  const [body, now] = ['{}', new Date()]
  const headers = webhookHeaders([secret], { id: newId(), time: now, body })
  return verifyWebhook(await webhookSecretsOf(id), headers, Buffer.from(body), now) !== null
}

describe('the secret of a workflow’s webhooks', () => {
  test('is made by the first rotation, and shown once', async () => {
    const { id } = await workflows.make()
    expect(await workflows.get(id)).toMatchObject({ webhook: null })
    expect(await webhookSecretsOf(id)).toEqual([])
    const { status, body } = await workflows.rotateWebhook(id)
    expect([status, body]).toEqual([
      200,
      {
        workflow_id: id,
        secret: expect.stringMatching(/^whsec_[A-Za-z0-9+/]{32}$/),
        secret_hint: String(body['secret']).slice(-4),
        former_until: null,
        rotated_at: expect.stringMatching(/Z$/),
      },
    ])
    expect(await isTaken(id, String(body['secret']))).toBe(true)
    const { workflow_id: _, secret, ...shown } = body
    const got = await workflows.get(id)
    expect(got).toMatchObject({ webhook: shown, revision: 1 })
    expect(JSON.stringify(got)).not.toContain(secret)
    expect(JSON.stringify(await AiWebhook.findOne({ _id: id, tenant_id: tenant.id }).lean())).not.toContain(
      secret,
    )
  })

  test('opens nothing after a rotation without an overlap', async () => {
    const { id } = await workflows.make()
    const first = await rotate(id)
    const second = await rotate(id, { overlap_sec: 0 })
    expect([await isTaken(id, first), await isTaken(id, second)]).toEqual([false, true])
  })

  test('signs beside the new one until the overlap ends', async () => {
    const { id } = await workflows.make()
    const first = await rotate(id)
    const second = await rotate(id, { overlap_sec: 3_600 })
    const its = { _id: id, tenant_id: tenant.id }
    const { webhook } = await workflows.get(id)
    const { former_until, rotated_at } = webhook as Record<string, string>
    expect(Date.parse(former_until ?? '') - Date.parse(rotated_at ?? '')).toBe(3_600_000)
    expect(await webhookSecretsOf(id)).toEqual([second, first])
    expect([await isTaken(id, first), await isTaken(id, second)]).toEqual([true, true])
    await AiWebhook.updateOne(its, { $set: { former_until: new Date() } })
    expect([await isTaken(id, first), await isTaken(id, second)]).toEqual([false, true])
    expect(await workflows.get(id)).toMatchObject({ webhook: { former_until: null } })
  })

  test('is refused after a second rotation, also within its overlap', async () => {
    const { id } = await workflows.make()
    const secrets = [await rotate(id), await rotate(id, { overlap_sec: 3_600 })]
    secrets.push(await rotate(id, { overlap_sec: 60 }))
    expect(await webhookSecretsOf(id)).toEqual([secrets[2], secrets[1]])
    secrets.push(await rotate(id))
    expect(await webhookSecretsOf(id)).toEqual([secrets[3]])
  })

  test('is one of its own in each of many rotations at once', async () => {
    const { id } = await workflows.make()
    const secrets = await Promise.all(Array.from({ length: 5 }, () => rotate(id, { overlap_sec: 60 })))
    expect(new Set(secrets).size).toBe(5)
    const [now, former] = await webhookSecretsOf(id)
    expect(now).not.toBe(former)
    expect(secrets).toEqual(expect.arrayContaining([now, former]))
  })

  test.each([{ overlap_sec: -1 }, { overlap_sec: 604_801 }, { overlap_sec: 1.5 }])(
    'is not rotated with %j',
    async (body) => {
      const { id } = await workflows.make()
      expect(await workflows.rotateWebhook(id, body)).toMatchObject(mistakeAt('/overlap_sec'))
      expect(await webhookSecretsOf(id)).toEqual([])
    },
  )

  test('is rotated only by who may change and run the workflow', async () => {
    const { id } = await workflows.make()
    for (const [has, lacks] of [
      ['workflows:update', 'workflows:run'],
      ['workflows:run', 'workflows:update'],
    ] as const) {
      const name = `role-${newId().slice(-12)}`
      await tenant.owner.ask('POST', '/api/v1/roles', { name, permissions: [has] })
      expect(await aiWorkflowsOf(await tenant.user(name)).rotateWebhook(id)).toMatchObject({
        status: 403,
        body: { code: 'permission_denied', permission: lacks },
      })
    }
    expect(await webhookSecretsOf(id)).toEqual([])
  })

  test('of another tenant is not rotated', async () => {
    const { id } = await workflows.make()
    const secret = await rotate(id)
    const stranger = aiWorkflowsOf((await makeTenant()).owner)
    expect(await stranger.rotateWebhook(id)).toMatchObject(notFound)
    expect(await webhookSecretsOf(id)).toEqual([secret])
  })

  test('is named by no audit event of its rotation', async () => {
    const { id } = await workflows.make()
    const { headers, body } = await workflows.rotateWebhook(id)
    const found = `/api/v1/audit-events?request_id=${headers.get('x-request-id')}`
    const { items } = await tenant.owner.get<{ items: Json[] }>(found)
    expect(items).toMatchObject([
      { action: 'POST /api/v1/workflows/{id}/webhook/rotate', resource_id: id, outcome: 'succeeded' },
    ])
    expect(JSON.stringify(items)).not.toContain(body['secret'])
  })

  test('goes with its workflow, and with its tenant', async () => {
    const { id } = await workflows.make()
    await rotate(id)
    expect(await workflows.delete(id)).toMatchObject({ status: 204 })
    expect(await webhookSecretsOf(id)).toEqual([])
    expect(await workflows.rotateWebhook(id)).toMatchObject(notFound)
    const other = await makeTenant()
    const its = aiWorkflowsOf(other.owner)
    await its.rotateWebhook((await its.make()).id)
    await removeTenantRecords(other.id)
    expect(await AiWebhook.collection.countDocuments({ tenant_id: other.id })).toBe(0)
  })
})
