import { beforeAll, describe, expect, test } from '@jest/globals'
import { hashOf } from '../../lib/ai/canonical.ts'
import { newId } from '../../lib/ids.ts'
import { AiWorkflow } from '../../models/ai/ai-workflows.ts'
import { AiWorkflowVersion, planOf } from '../../models/ai/versions.ts'
import { removeTenantRecords } from '../../models/identity/tenant-records.ts'
import { specOf } from '../support/ai/specs.ts'
import { replicas } from '../support/api-clients.ts'
import { aiWorkflowsOf } from '../support/clients/ai-workflows.ts'
import { blocksOf, pageOf } from '../../script/lib/pages.ts'
import { openShell } from '../support/paste.ts'
import { facts } from '../support/stack.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// How drafts become versions.

let tenant: TestTenant
let workflows: ReturnType<typeof aiWorkflowsOf>
beforeAll(async () => {
  tenant = await makeTenant()
  workflows = aiWorkflowsOf(tenant.owner)
})

/** A spec that uses nothing of the tenant's. */
const saying = (text: string) =>
  specOf({ say: { kind: 'template', value: text } }, { models: {}, output: '${nodes.say.output}' })
const wrong = specOf(
  { say: { kind: 'template', value: '${input.nothing}' }, call: { kind: 'tool', tool: 'gone' } },
  { models: {}, budget: { wall_sec: 60, tokens: 999_999_999 } },
)
const errors = {
  code: 'workflow_invalid',
  nodes: {
    say: [{ pointer: '/nodes/say/value', code: 'unknown_reference', message: expect.any(String) }],
    call: [{ pointer: '/nodes/call/tool', code: 'tool_missing', message: 'there is no tool gone' }],
  },
  errors: [{ pointer: '/budget/tokens', code: 'budget_too_high', message: expect.any(String) }],
}

describe('validation', () => {
  test('saves nothing', async () => {
    const { id } = await workflows.make(saying('hello'))
    const before = await workflows.get(id)
    expect(await workflows.validate(id)).toMatchObject({
      status: 200,
      body: { valid: true, nodes: {}, spec_sha256: hashOf(saying('hello')) },
    })
    expect(await workflows.validate(id, { spec: wrong })).toMatchObject({ status: 422, body: errors })
    expect(await workflows.validate(id, { spec: saying('other') })).toMatchObject({
      body: { spec_sha256: hashOf(saying('other')) },
    })
    expect(await workflows.get(id)).toEqual(before)
    expect(await workflows.versions(id)).toEqual([])
  })

  test('of an unfinished draft says what is missing', async () => {
    const { id } = await workflows.make()
    const { status, body } = await workflows.validate(id)
    expect([status, body['nodes']]).toEqual([422, {}])
    const missing = (body['errors'] as { pointer: string }[]).map(({ pointer }) => pointer)
    expect(missing).toEqual(
      expect.arrayContaining(['/spec', '/nodes', '/budget', '/input_schema', '/output']),
    )
  })
})

describe('a publication', () => {
  test('makes versions that do not change any more', async () => {
    const { id, name } = await workflows.make(saying('one'))
    const { status, headers, body } = await workflows.publish(id)
    const first = { workflow_id: id, version: 1, spec_sha256: hashOf(saying('one')) }
    expect([status, headers.get('location')]).toEqual([201, `/api/v1/workflows/${id}/versions/1`])
    expect(body).toEqual({ ...first, created_at: expect.any(String) })
    expect(await workflows.get(id)).toMatchObject({
      status: 'published',
      revision: 1,
      latest_version: 1,
      latest_sha256: first.spec_sha256,
      spec_sha256: first.spec_sha256,
    })
    await workflows.change(id, { spec: saying('two') })
    expect(await workflows.get(id)).toMatchObject({ latest_version: 1, latest_sha256: first.spec_sha256 })
    expect(await workflows.publish(id, 2)).toMatchObject({ status: 201, body: { version: 2 } })
    expect(await workflows.version(id, 1)).toMatchObject({ ...first, uses: [], spec: saying('one') })
    expect(await workflows.version(id, 2)).toMatchObject({ version: 2, spec: saying('two') })
    expect((await workflows.versions(id)).map(({ version }) => version)).toEqual([1, 2])
    expect(await workflows.list(`?status=published&latest_version=2&name=${name}`)).toHaveLength(1)
    for (const none of ['0', '3', '01', '-1', '1e0', 'x', newId()])
      expect(await tenant.owner.ask('GET', `/api/v1/workflows/${id}/versions/${none}`)).toMatchObject({
        status: 404,
      })
    const kept = await AiWorkflowVersion.findOne({ tenant_id: tenant.id, workflow_id: id, version: 1 }).lean()
    expect(kept && planOf(kept).nodes['say']).toMatchObject({ output: 'string' })
  })

  test('of an invalid draft gives its errors by node, and makes nothing', async () => {
    const { id } = await workflows.make(wrong)
    expect(await workflows.publish(id)).toMatchObject({ status: 422, body: errors })
    expect(await workflows.get(id)).toMatchObject({ status: 'draft', latest_version: null })
    expect(await workflows.versions(id)).toEqual([])
  })

  test('of what is published already finds that version, whatever the order of fields', async () => {
    const { id } = await workflows.published(saying('one'))
    expect(await workflows.publish(id)).toMatchObject({ status: 200, body: { version: 1 } })
    const reversed = Object.fromEntries(Object.entries(saying('one')).toReversed())
    await workflows.change(id, { spec: reversed, description: 'other' })
    expect(await workflows.publish(id)).toMatchObject({ status: 200, body: { version: 1 } })
    for (const [text, version] of [
      ['two', 2],
      ['one', 3],
    ] as const) {
      await workflows.change(id, { spec: saying(text) })
      expect(await workflows.publish(id)).toMatchObject({ status: 201, body: { version } })
    }
  })

  test('happens once under an Idempotency-Key', async () => {
    const { id } = await workflows.make(saying('one'))
    const headers = { 'idempotency-key': newId() }
    const publish = () => tenant.owner.ask('POST', `/api/v1/workflows/${id}/publish`, undefined, headers)
    const [first, again] = [await publish(), await publish()]
    expect([first.status, again.status, again.body]).toEqual([201, 201, first.body])
    expect(again.headers.get('location')).toBe(first.headers.get('location'))
  })

  test('counts against the tenant’s limit of versions', async () => {
    const { owner } = await makeTenant({ max_workflow_versions: 2 })
    const its = aiWorkflowsOf(owner)
    const one = await its.published(saying('one'))
    await its.published(saying('one'))
    await its.change(one.id, { spec: saying('two') })
    expect(await its.publish(one.id)).toMatchObject({
      status: 409,
      body: { code: 'quota_exceeded', limit: 'max_workflow_versions' },
    })
    expect(await its.get(one.id)).toMatchObject({ latest_version: 1 })
  })

  test('needs a permission of its own', async () => {
    const { id } = await workflows.make(saying('one'))
    const role = { name: `role-${newId().slice(-12)}`, permissions: ['workflows:read', 'workflows:update'] }
    await tenant.owner.ask('POST', '/api/v1/roles', role)
    const author = aiWorkflowsOf(await tenant.user(role.name))
    expect(await author.validate(id)).toMatchObject({ status: 200 })
    expect(await author.publish(id)).toMatchObject({
      status: 403,
      body: { permission: 'workflows:publish' },
    })
  })
})

/** At one replica of the API after the other: transactions of one replica take turns. */
const publishAt = (at: number, id: string) =>
  tenant.owner.ask('POST', `${replicas()[at % 2]}/api/v1/workflows/${id}/publish`)

describe('publications at once', () => {
  test('of one draft make one version', async () => {
    const { id } = await workflows.make(saying('one'))
    const answers = await Promise.all(Array.from({ length: 8 }, (_, at) => publishAt(at, id)))
    expect(answers.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([
      ...Array(7).fill(200),
      201,
    ])
    expect(new Set(answers.map(({ body }) => body['version']))).toEqual(new Set([1]))
    expect(await workflows.versions(id)).toHaveLength(1)
  })

  test('with changes of the draft leave no gap, and never two versions in a row with one content', async () => {
    const { id } = await workflows.make(saying('0'))
    const answers = await Promise.all(
      Array.from({ length: 24 }, (_, at) =>
        at % 2 ? publishAt(at >> 1, id) : workflows.change(id, { spec: saying(`${at % 6}`) }),
      ),
    )
    // A draft that changes all the time may not be published: the answer says so.
    for (const { status, body } of answers)
      if (status === 409) expect(body['code']).toBe('state_conflict')
      else expect([200, 201]).toContain(status)
    await workflows.publish(id)
    const versions = await workflows.versions(id)
    expect(versions.map(({ version }) => version)).toEqual(versions.map((_, at) => at + 1))
    const hashes = versions.map(({ spec_sha256 }) => spec_sha256)
    expect(hashes.filter((hash, at) => hash === hashes[at - 1])).toEqual([])
    const { spec_sha256, latest_sha256, latest_version } = await workflows.get(id)
    expect([latest_sha256, latest_version]).toEqual([spec_sha256, versions.length])
    for (const { version } of versions) {
      const whole = await workflows.version(id, version)
      expect(hashOf(whole.spec)).toBe(whole.spec_sha256)
    }
  })

  test('and a deletion leave no version behind', async () => {
    for (let round = 0; round < 5; round++) {
      const { id } = await workflows.make(saying(`${round}`))
      const [published, deleted] = await Promise.all([workflows.publish(id), workflows.delete(id)])
      expect(deleted.status).toBe(204)
      expect([201, 404]).toContain(published.status)
      expect(await AiWorkflowVersion.countDocuments({ tenant_id: tenant.id, workflow_id: id })).toBe(0)
    }
  })
})

test('The example of docs/ai-workflows.md publishes a workflow', async () => {
  const other = await makeTenant()
  const shell = openShell({ API: facts().api_url, TOKEN: other.owner.token })
  try {
    const [helpers = ''] = blocksOf(await pageOf('vpcs'))
    await shell.paste(helpers.slice(0, helpers.indexOf('\n\n')))
    const [story = ''] = blocksOf(await pageOf('ai-workflows'))
    const told = await shell.paste(story)
    expect(told).toContain('"valid":true')
    expect(told).toContain('"value":"Hello ${input.name}"')
    expect(await aiWorkflowsOf(other.owner).list()).toMatchObject([{ name: 'greeting', latest_version: 1 }])
  } finally {
    await shell.close()
  }
})

test('The deletion of a tenant removes its workflows and versions', async () => {
  const other = await makeTenant()
  await aiWorkflowsOf(other.owner).published(saying('one'))
  await removeTenantRecords(other.id)
  for (const model of [AiWorkflow, AiWorkflowVersion])
    expect(await model.collection.countDocuments({ tenant_id: other.id })).toBe(0)
})
