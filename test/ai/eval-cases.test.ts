import { beforeAll, describe, expect, test } from '@jest/globals'
import { caseSetHash, type EvalCase } from '../../lib/ai/eval-cases.ts'
import { newId } from '../../lib/ids.ts'
import { AiEvalCase } from '../../models/ai/eval-cases.ts'
import { removeTenantRecords } from '../../models/identity/tenant-records.ts'
import { aiWorkflowsOf, type EvalCaseBody } from '../support/clients/ai-workflows.ts'
import type { Answer, Json } from '../support/client.ts'
import { mistakeAt } from '../support/refusals.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// The eval cases of AI workflows, their hash, and the gate that needs them.

let tenant: TestTenant
let workflows: ReturnType<typeof aiWorkflowsOf>
beforeAll(async () => {
  tenant = await makeTenant()
  workflows = aiWorkflowsOf(tenant.owner)
})

/** Names that MongoDB would take for its own, and an order that JSON need not keep. */
const input = { z: { $ref: 'a.b' }, 'a.b': { $gt: '' }, n: null }
const polite = { name: 'polite', input, assertion: { kind: 'contains', text: 'please' } }
const exact = { ...polite, name: 'exact', assertion: { kind: 'equals', value: { $set: [1, null] } } }
const judge = { kind: 'judge', rubric: 'Is it polite?', model: 'fast' }
const notFound = { status: 404, body: { code: 'not_found' } }

/** Must succeed. */
async function put(id: string, fields: Json, status: 200 | 201 = 201): Promise<EvalCaseBody> {
  const answer = await workflows.putEval(id, fields)
  if (answer.status !== status) throw new Error(`${answer.status} ${JSON.stringify(answer.body)}`)
  return answer.body as EvalCaseBody
}
const hashOf = async (id: string): Promise<string | null> => (await workflows.get(id)).case_set_sha256
/** The hash of what the list shows. */
const hashOfListed = async (id: string): Promise<string | null> =>
  caseSetHash((await workflows.evals(id, '?limit=100')) as unknown as EvalCase[])
const statuses = (answers: Answer[]): number[] =>
  answers.map(({ status }) => status).toSorted((a, b) => a - b)

/** A user with these permissions alone. */
async function userWith(...permissions: string[]): Promise<ReturnType<typeof aiWorkflowsOf>> {
  const name = `role-${newId().slice(-12)}`
  await tenant.owner.ask('POST', '/api/v1/roles', { name, permissions })
  return aiWorkflowsOf(await tenant.user(name))
}

describe('an eval case', () => {
  test('is created, listed, replaced by its name or id, and deleted', async () => {
    const { id } = await workflows.make()
    const { status, headers, body } = await workflows.putEval(id, polite)
    const path = `/api/v1/workflows/${id}/evals/${String(body['id'])}`
    expect([status, headers.get('location')]).toEqual([201, path])
    expect(body).toMatchObject({ ...polite, workflow_id: id, repeats: 1, min_pass: 1 })
    expect(JSON.stringify(body['input'])).toBe(JSON.stringify(input))
    expect(await workflows.evals(id)).toEqual([body])

    const often = await put(id, { ...polite, assertion: judge, repeats: 5, min_pass: 4 }, 200)
    expect(often).toMatchObject({ id: body['id'], assertion: judge, repeats: 5, min_pass: 4 })
    const { name: _, ...nameless } = exact
    expect(await put(id, { ...nameless, id: body['id'], repeats: 2 }, 200)).toMatchObject({
      ...exact,
      name: 'polite',
      repeats: 2,
      min_pass: 2,
    })
    expect(await put(id, { ...polite, id: body['id'], name: 'kind' }, 200)).toMatchObject({ name: 'kind' })

    const { id: second } = await put(id, exact)
    expect(await workflows.evals(id, '?name=exact')).toMatchObject([{ id: second }])
    expect(await workflows.evals(id, '?sort_by=name&order=asc')).toMatchObject([exact, { name: 'kind' }])
    expect(await workflows.deleteEval(id, second)).toMatchObject({ status: 204 })
    expect(await workflows.deleteEval(id, second)).toMatchObject(notFound)
    expect(await workflows.evals(id)).toMatchObject([{ name: 'kind' }])
  })

  test('of another workflow is neither replaced nor deleted', async () => {
    const [one, other] = [await workflows.make(), await workflows.make()]
    const { id } = await put(one.id, polite)
    expect(await workflows.putEval(other.id, { ...exact, id })).toMatchObject(notFound)
    expect(await workflows.deleteEval(other.id, id)).toMatchObject(notFound)
    expect(await workflows.evals(one.id)).toMatchObject([polite])
    expect(await put(other.id, polite)).toMatchObject(polite)
  })

  test('keeps its name from another of the workflow', async () => {
    const { id } = await workflows.make()
    await put(id, polite)
    const { id: second } = await put(id, exact)
    expect(await workflows.putEval(id, { ...exact, id: second, name: 'polite' })).toMatchObject({
      status: 409,
      body: { code: 'name_taken' },
    })
    expect(await workflows.evals(id, '?sort_by=name&order=asc')).toMatchObject([exact, polite])
  })

  test('of another tenant looks absent', async () => {
    const { id } = await workflows.make()
    const { id: caseId } = await put(id, polite)
    const stranger = aiWorkflowsOf((await makeTenant()).owner)
    const their = await stranger.make()
    for (const answer of [
      await stranger.putEval(id, polite),
      await stranger.putEval(id, { ...exact, id: caseId }),
      await stranger.putEval(their.id, { ...exact, id: caseId }),
      await stranger.deleteEval(id, caseId),
      await stranger.deleteEval(their.id, caseId),
      await stranger.setEvalGate(id, true),
    ])
      expect(answer).toMatchObject(notFound)
    await expect(stranger.evals(id)).rejects.toThrow('404')
    expect(await workflows.evals(id)).toMatchObject([polite])
    expect(await workflows.get(id)).toMatchObject({ require_eval_pass: false })
  })

  test.each<[string, string, Json]>([
    ['without a name', '/name', { name: null }],
    ['with a name of another form', '/name', { name: 'Not A Name' }],
    ['without an input', '/input', { input: undefined }],
    ['without an assertion', '/assertion', { assertion: undefined }],
    ['with an assertion of no known kind', '/assertion/kind', { assertion: { kind: 'matches', text: 'a' } }],
    ['with two assertions in one', '/assertion/value', { assertion: { ...polite.assertion, value: 1 } }],
    ['with a judge without a model', '/assertion/model', { assertion: { kind: 'judge', rubric: 'Polite?' } }],
    ['with 21 repeats', '/repeats', { repeats: 21 }],
    ['without a repeat', '/repeats', { repeats: 0 }],
    ['that must pass more often than it is run', '/min_pass', { repeats: 2, min_pass: 3 }],
    ['that need not pass', '/min_pass', { min_pass: 0 }],
    ['with more than 256 KiB', '/input', { input: 'x'.repeat(256 * 1024) }],
  ])('%s is refused', async (_, pointer, fields) => {
    const { id } = await workflows.make()
    expect(await workflows.putEval(id, { ...polite, ...fields })).toMatchObject(mistakeAt(pointer))
    expect(await workflows.evals(id)).toEqual([])
  })

  test.each<[string, string]>([
    ['more than 32 levels', `${'['.repeat(40)}${']'.repeat(40)}`],
    ['a number that JSON has not', '1e999'],
    ['half a character', String.raw`"\ud800"`],
    ['a field named __proto__', '{"a":{"__proto__":1}}'],
  ])('with %s is refused', async (_, json) => {
    const { id } = await workflows.make()
    const path = `/api/v1/workflows/${id}/evals`
    const send = (input_json: string, value: string): Promise<Answer> =>
      tenant.owner.ask(
        'POST',
        path,
        `{"name":"wrong","input":${input_json},"assertion":{"kind":"equals","value":${value}}}`,
      )
    expect(await send(json, '1')).toMatchObject(mistakeAt('/input'))
    expect(await send('1', json)).toMatchObject(mistakeAt('/assertion'))
    expect(await workflows.evals(id)).toEqual([])
  })

  test('names a connector only if its author may use connectors', async () => {
    const { id } = await workflows.make()
    const author = await userWith('workflows:read', 'workflows:update')
    const model = { connector: 'openai', model: 'gpt-4o' }
    expect(await author.putEval(id, { ...polite, assertion: { ...judge, model } })).toMatchObject({
      status: 403,
      body: { code: 'permission_denied', permission: 'connectors:use' },
    })
    expect(await author.putEval(id, { ...polite, assertion: judge })).toMatchObject({ status: 201 })
    expect(await put(id, { ...polite, assertion: { ...judge, model } }, 200)).toMatchObject({
      assertion: { model },
    })
  })
})

describe('the hash of all cases', () => {
  test('follows each change, and is no change of the draft', async () => {
    const { id } = await workflows.make()
    const seen = [await hashOf(id)]
    expect(seen).toEqual([null])
    const noteHash = async (): Promise<void> => {
      const hash = await hashOf(id)
      expect(hash).toBe(await hashOfListed(id))
      expect(seen).not.toContain(hash)
      seen.push(hash)
    }
    const { id: first } = await put(id, polite)
    await noteHash()
    const { id: second } = await put(id, exact)
    await noteHash()
    await put(id, { ...exact, repeats: 2 }, 200)
    await noteHash()
    await put(id, { ...exact, id: second, name: 'other', repeats: 2 }, 200)
    await noteHash()
    await workflows.deleteEval(id, first)
    await noteHash()
    await put(id, { ...exact, id: second, repeats: 1 }, 200)
    await put(id, polite)
    // The same cases as once before.
    expect(await hashOf(id)).toBe(seen[2])
    expect(await workflows.list(`?id=${id}&case_set_sha256=${String(seen[2])}`)).toMatchObject([
      { id, revision: 1 },
    ])
  })

  test('stays, if a case is replaced by the same', async () => {
    const { id } = await workflows.make()
    await put(id, polite)
    const before = await workflows.get(id)
    await put(id, { ...polite, input: { n: null, 'a.b': { $gt: '' }, z: { $ref: 'a.b' } } }, 200)
    expect(await workflows.get(id)).toEqual(before)
  })

  test('is that of all cases that are put at once', async () => {
    const { id } = await workflows.make()
    const names = Array.from({ length: 10 }, (_, at) => `case-${at}`)
    const answers = await Promise.all(names.map((name) => workflows.putEval(id, { ...polite, name })))
    expect(statuses(answers)).toEqual(names.map(() => 201))
    expect(await workflows.evals(id)).toHaveLength(10)
    expect(await hashOf(id)).toBe(await hashOfListed(id))
  })
})

describe('the cases of a workflow', () => {
  test('have one of a name, of many that are created at once', async () => {
    const { id } = await workflows.make()
    const answers = await Promise.all(
      Array.from({ length: 10 }, (_, at) => workflows.putEval(id, { ...polite, repeats: at + 1 })),
    )
    expect(statuses(answers)).toEqual([...Array.from({ length: 9 }, () => 200), 201])
    expect(new Set(answers.map(({ body }) => body['id'])).size).toBe(1)
    expect(await workflows.evals(id)).toHaveLength(1)
    expect(await hashOf(id)).toBe(await hashOfListed(id))
  })

  test('count against the tenant’s limit, in parallel too', async () => {
    const { owner } = await makeTenant({ max_evals_per_workflow: 2 })
    const its = aiWorkflowsOf(owner)
    const [{ id }, other] = [await its.make(), await its.make()]
    const create = (name: string): Promise<Answer> => its.putEval(id, { ...polite, name })
    const answers = await Promise.all(['a', 'b', 'c', 'd', 'e'].map(create))
    expect(statuses(answers)).toEqual([201, 201, 409, 409, 409])
    expect(answers.find(({ status }) => status === 409)?.body).toMatchObject({
      code: 'quota_exceeded',
      limit: 'max_evals_per_workflow',
    })
    const [first] = await its.evals(id)
    expect(await create(String(first?.name))).toMatchObject({ status: 200 })
    expect(await its.putEval(other.id, polite)).toMatchObject({ status: 201 })
    await its.deleteEval(id, String(first?.id))
    expect(await create('f')).toMatchObject({ status: 201 })
  })

  test('have at most 4 MiB together', async () => {
    const { id } = await workflows.make()
    const large = { ...polite, input: 'x'.repeat(255 * 1024) }
    for (let at = 0; at < 16; at++) await put(id, { ...large, name: `large-${at}` })
    const before = await hashOf(id)
    expect(await workflows.putEval(id, { ...large, name: 'too-much' })).toMatchObject({
      status: 409,
      body: { code: 'evals_too_large' },
    })
    expect(await hashOf(id)).toBe(before)
    expect(await AiEvalCase.countDocuments({ tenant_id: tenant.id, workflow_id: id })).toBe(16)
    expect(await put(id, { ...polite, name: 'small' })).toMatchObject({ name: 'small' })
  })

  test('go with their workflow, also one that is put meanwhile', async () => {
    const { id } = await workflows.make()
    await put(id, polite)
    const names = Array.from({ length: 5 }, (_, at) => `case-${at}`)
    const [deletion, ...answers] = await Promise.all([
      workflows.delete(id),
      ...names.map((name) => workflows.putEval(id, { ...polite, name })),
    ])
    expect(deletion.status).toBe(204)
    for (const { status } of answers) expect([201, 404]).toContain(status)
    expect(await AiEvalCase.countDocuments({ tenant_id: tenant.id, workflow_id: id })).toBe(0)
  })

  test('go with their tenant', async () => {
    const other = await makeTenant()
    const its = aiWorkflowsOf(other.owner)
    await its.putEval((await its.make()).id, polite)
    await removeTenantRecords(other.id)
    expect(await AiEvalCase.collection.countDocuments({ tenant_id: other.id })).toBe(0)
  })
})

describe('the eval gate', () => {
  test('is set and shown, and is no change of the draft', async () => {
    const { id } = await workflows.make()
    expect(await workflows.get(id)).toMatchObject({ require_eval_pass: false })
    await put(id, polite)
    const { status, headers, body } = await workflows.setEvalGate(id, true)
    const case_set_sha256 = await hashOf(id)
    expect([status, body]).toEqual([200, { workflow_id: id, require_eval_pass: true, case_set_sha256 }])
    expect(await workflows.get(id)).toMatchObject({ require_eval_pass: true, revision: 1 })
    expect(await workflows.list(`?id=${id}&require_eval_pass=true`)).toMatchObject([{ id }])
    const found = `/api/v1/audit-events?request_id=${headers.get('x-request-id')}`
    expect((await tenant.owner.get<{ items: Json[] }>(found)).items).toMatchObject([
      { action: 'PUT /api/v1/workflows/{id}/eval-gate', resource_id: id, outcome: 'succeeded' },
    ])
    expect(await workflows.setEvalGate(id, false)).toMatchObject({ body: { require_eval_pass: false } })
  })

  test('needs who may publish, not only who may change cases', async () => {
    const { id } = await workflows.make()
    const author = await userWith('workflows:read', 'workflows:update')
    expect(await author.putEval(id, polite)).toMatchObject({ status: 201 })
    expect(await author.setEvalGate(id, true)).toMatchObject({
      status: 403,
      body: { permission: 'workflows:publish' },
    })
    const reader = await userWith('workflows:read', 'workflows:publish')
    const { status } = await reader.setEvalGate(id, true)
    expect([status, (await reader.putEval(id, polite)).status]).toEqual([200, 403])
    expect(await reader.evals(id)).toHaveLength(1)
  })
})
