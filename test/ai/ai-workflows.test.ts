import { beforeAll, describe, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { aiWorkflowsOf } from '../support/clients/ai-workflows.ts'
import type { Json } from '../support/client.ts'
import { mistakeAt } from '../support/refusals.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// AI workflows and their drafts.

let tenant: TestTenant
let workflows: ReturnType<typeof aiWorkflowsOf>
beforeAll(async () => {
  tenant = await makeTenant()
  workflows = aiWorkflowsOf(tenant.owner)
})

const send = (method: string, path: string, body: string) =>
  tenant.owner.ask(method, `/api/v1/workflows${path}`, body)
const differs = (revision: number) => ({ status: 412, body: { code: 'revision_differs', revision } })

/** Names that MongoDB would take for its own, and an order that JSON need not keep. */
const draft = { spec: 1, nodes: { z: { $ref: '#/$defs/a.b' }, a: {} }, 'a.b': { $gt: '' }, budget: null }

describe('an AI workflow', () => {
  test('is made with its draft, shown as it was sent, listed without it, and deleted', async () => {
    const about = { description: 'Answers mail', tags: { team: 'a' } }
    const { status, headers, body } = await workflows.create({ ...about, spec: draft })
    const id = String(body['id'])
    expect([status, headers.get('location')]).toEqual([201, `/api/v1/workflows/${id}`])
    expect(body).toMatchObject({
      ...about,
      status: 'draft',
      revision: 1,
      spec: draft,
      latest_version: null,
      latest_sha256: null,
    })
    const got = await workflows.get(id)
    expect(got).toEqual(body)
    expect(JSON.stringify(got.spec)).toBe(JSON.stringify(draft))
    const [listed] = await workflows.list(`?name=${got.name}&status=draft`)
    const alone = ['spec', 'deployment', 'canary', 'former_deployments', 'webhook', 'schedule']
    expect(listed).toEqual(Object.fromEntries(Object.entries(body).filter(([name]) => !alone.includes(name))))
    expect(await workflows.list('?q=answers mail')).toHaveLength(1)
    expect(await workflows.delete(id)).toMatchObject({ status: 204 })
    expect(await workflows.delete(id)).toMatchObject({ status: 404 })
  })

  test('has an empty draft if none was given', async () => {
    expect((await workflows.create()).body).toMatchObject({ spec: {}, description: '', tags: {} })
  })

  test.each<[string, string]>([
    ['a list', '[]'],
    ['a text', '"spec"'],
    ['null', 'null'],
    ['more than 32 levels', `{"a":${'['.repeat(40)}${']'.repeat(40)}}`],
    ['more than 512 KiB', `{"a":"${'x'.repeat(512 * 1024)}"}`],
    ['a number that JSON has not', '{"a":1e999}'],
    ['half a character', String.raw`{"a":"\ud800"}`],
    ['a field named __proto__', '{"__proto__":{"a":1}}'],
    ['a field named __proto__ within', '{"nodes":{"__proto__":1}}'],
  ])('takes no draft that is or has %s', async (_, spec) => {
    expect(await send('POST', '', `{"name":"wrong","spec":${spec}}`)).toMatchObject(mistakeAt('/spec'))
    const { id } = await workflows.make()
    expect(await send('PUT', `/${id}`, `{"spec":${spec}}`)).toMatchObject(mistakeAt('/spec'))
    expect(await workflows.get(id)).toMatchObject({ spec: {}, revision: 1 })
  })

  test('has a name of its own', async () => {
    const { name } = await workflows.make()
    const taken = { status: 409, body: { code: 'name_taken' } }
    expect(await workflows.create({ name })).toMatchObject(taken)
    const other = await workflows.make()
    expect(await workflows.change(other.id, { name })).toMatchObject(taken)
    expect(await aiWorkflowsOf((await makeTenant()).owner).create({ name })).toMatchObject({ status: 201 })
  })

  test('counts against the tenant’s limit, in parallel too', async () => {
    const { owner } = await makeTenant({ max_workflows: 2 })
    const its = aiWorkflowsOf(owner)
    const answers = await Promise.all(Array.from({ length: 5 }, () => its.create()))
    expect(answers.filter(({ status }) => status === 201)).toHaveLength(2)
    expect(answers.find(({ status }) => status === 409)?.body).toMatchObject({
      code: 'quota_exceeded',
      limit: 'max_workflows',
    })
    const [first] = await its.list()
    await its.delete(first?.id ?? '')
    expect(await its.create()).toMatchObject({ status: 201 })
  })

  test('is made once under an Idempotency-Key', async () => {
    const headers = { 'idempotency-key': newId() }
    const name = `workflow-${newId().slice(-12)}`
    const [first, again] = [
      await workflows.create({ name }, headers),
      await workflows.create({ name }, headers),
    ]
    expect([first.status, again.status, again.body]).toEqual([201, 201, first.body])
    expect([first, again].map((answer) => answer.headers.get('etag'))).toEqual(['"1"', '"1"'])
  })

  test('changes in part', async () => {
    const { id, name } = await workflows.make(draft, { tags: { team: 'a' } })
    const { status, headers, body } = await workflows.change(id, { description: 'other' })
    expect([status, headers.get('etag')]).toEqual([200, '"2"'])
    expect(body).toMatchObject({ name, description: 'other', tags: { team: 'a' }, spec: draft, revision: 2 })
    expect(await workflows.change(id, { spec: { spec: 1 } })).toMatchObject({
      body: { description: 'other', spec: { spec: 1 }, revision: 3 },
    })
    expect(await workflows.change(id, { draft: {} })).toMatchObject(mistakeAt('/draft'))
    expect(await workflows.change(id, { name: 'Not A Name' })).toMatchObject(mistakeAt('/name'))
    expect(await workflows.get(id)).toMatchObject({ name, revision: 3 })
  })

  test('is another tenant’s like one that is not there', async () => {
    const { id } = await workflows.make(draft)
    const stranger = aiWorkflowsOf((await makeTenant()).owner)
    for (const answer of [
      await stranger.change(id, { spec: {} }),
      await stranger.change(id, { spec: {} }, 99),
      await stranger.delete(id),
      await stranger.delete(id, '', 99),
      await stranger.validate(id),
      await stranger.publish(id),
    ])
      expect(answer).toMatchObject({ status: 404, body: { code: 'not_found' } })
    expect(await stranger.list()).toEqual([])
    expect(await workflows.get(id)).toMatchObject({ spec: draft, revision: 1 })
  })
})

describe('a revision', () => {
  test('keeps one author from overwriting what another has written', async () => {
    const { id } = await workflows.make(draft)
    expect(await workflows.change(id, { description: 'mine' }, 1)).toMatchObject({ body: { revision: 2 } })
    expect(await workflows.change(id, { description: 'theirs' }, 1)).toMatchObject(differs(2))
    expect(await workflows.delete(id, '', 1)).toMatchObject(differs(2))
    expect(await workflows.publish(id, 1)).toMatchObject(differs(2))
    expect(await workflows.get(id)).toMatchObject({ description: 'mine', revision: 2 })
    expect(await workflows.delete(id, '', 2)).toMatchObject({ status: 204 })
    expect(await workflows.delete(id, '', 2)).toMatchObject({ status: 404 })
  })

  test('is the ETag of answers, which If-Match takes as RFC 9110 says', async () => {
    const { id } = await workflows.make(draft)
    const path = `/api/v1/workflows/${id}`
    const got = await tenant.owner.ask('GET', path, undefined, { 'if-match': '"99"' })
    expect([got.status, got.headers.get('etag')]).toEqual([200, '"1"'])
    const change = (match: string) => tenant.owner.ask('PUT', path, {}, { 'if-match': match })
    expect(await change('*')).toMatchObject({ body: { revision: 2 } })
    expect(await change('"7", "2"')).toMatchObject({ body: { revision: 3 } })
    for (const other of ['W/"3"', '"x"', '"2"']) expect(await change(other)).toMatchObject(differs(3))
    expect(await change('3')).toMatchObject({ status: 400, body: { code: 'invalid_input' } })
  })

  test('lets one of many changes at once through', async () => {
    const { id } = await workflows.make(draft)
    const changes = Array.from({ length: 10 }, (_, at): Json => ({ description: `change ${at}` }))
    const answers = await Promise.all(changes.map((one) => workflows.change(id, one, 1)))
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1)
    expect(answers.filter(({ status }) => status === 412)).toHaveLength(9)
    const won = answers.find(({ status }) => status === 200)?.body ?? {}
    expect(await workflows.get(id)).toMatchObject({ revision: 2, description: won['description'] })
    const blind = await Promise.all(changes.map((one) => workflows.change(id, one)))
    const seen = blind.map(({ status, body }) => `${status} ${String(body['revision'])}`)
    expect(new Set(seen)).toEqual(new Set(changes.map((_, at) => `200 ${at + 3}`)))
  })
})
