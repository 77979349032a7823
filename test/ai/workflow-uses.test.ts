import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import type { ListedTool } from '../../lib/mcp-tools.ts'
import { newId } from '../../lib/ids.ts'
import { Connector } from '../../models/connectors/connectors.ts'
import { keptListing } from '../../models/tools/listings.ts'
import { Tool } from '../../models/tools/tools.ts'
import { specOf } from '../support/ai/specs.ts'
import { insertCollection, insertConnector } from '../support/ai/tenant-things.ts'
import { aiWorkflowsOf } from '../support/clients/ai-workflows.ts'
import { connectorsOf } from '../support/clients/connectors.ts'
import { toolsOf } from '../support/clients/tools.ts'
import type { Answer, Json } from '../support/client.ts'
import { startModelVendors } from '../support/providers/model-vendors.ts'
import { providerPorts } from '../support/stack.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// What specs refer to among the things of their tenant, and what keeps those from their deletion.

const key = 'planted-secret-of-a-vendor'
let vendors: Awaited<ReturnType<typeof startModelVendors>>
let tenant: TestTenant
let workflows: ReturnType<typeof aiWorkflowsOf>
let tools: ReturnType<typeof toolsOf>
let connectors: ReturnType<typeof connectorsOf>
beforeAll(async () => {
  vendors = await startModelVendors(providerPorts.workflows, ['gpt-4o-mini'])
  vendors.accept(key)
  use(await makeTenant())
})
afterAll(() => vendors.close())

function use(one: TestTenant): void {
  tenant = one
  workflows = aiWorkflowsOf(tenant.owner)
  tools = toolsOf(tenant.owner)
  connectors = connectorsOf(tenant.owner)
}

const openai = (more: object = {}) =>
  insertConnector(tenant.id, 'openai', `${vendors.url}/openai`, { token: key, ...more })

const asking = (connector: string, model = 'gpt-4o-mini') =>
  specOf(
    { ask: { kind: 'llm', model: 'fast', messages: [{ role: 'user', content: 'hello' }] } },
    { models: { fast: { connector, model } } },
  )
const withNode = (it: object) => specOf({ it }, { models: {} })
const calling = (tool: string, more: object = {}) => withNode({ kind: 'tool', tool, ...more })
const searching = (collection: string) => withNode({ kind: 'retrieve', collection, query: '${input.text}' })
const running = (workflow: string, more: object = {}) =>
  withNode({ kind: 'workflow', workflow, input: { text: 'hello' }, ...more })
const echo = specOf(
  { say: { kind: 'template', value: '${input.text}' } },
  { models: {}, output: { said: '${nodes.say.output}' } },
)

const noTool: Omit<ListedTool, 'name' | 'input_schema'> = {
  title: null,
  description: null,
  output_schema: null,
  annotations: null,
}

/** The codes of what validation finds, by place. */
async function errorsOf(spec: object, of = workflows): Promise<string[]> {
  const { id } = await workflows.make()
  const { status, body } = await of.validate(id, { spec })
  await workflows.delete(id)
  if (status === 200) return []
  expect([status, body['code']]).toEqual([422, 'workflow_invalid'])
  const nodes = Object.values(body['nodes'] as Record<string, Json[]>).flat()
  return [...nodes, ...(body['errors'] as Json[])].map(
    ({ pointer, code }) => `${String(pointer)} ${String(code)}`,
  )
}

const inUse = (what: string, by: { id: string; name: string }) => ({
  status: 409,
  body: { code: `${what}_in_use`, uses: [{ kind: 'workflow', id: by.id, name: by.name }], count: 1 },
})

/** Publishes a spec while what it uses is deleted: one of the two is refused. */
async function race(spec: object, remove: () => Promise<Answer>): Promise<void> {
  const { id } = await workflows.make(spec)
  const [published, removed] = await Promise.all([workflows.publish(id), remove()])
  const isPublished = published.status === 201
  expect([
    [201, 409],
    [422, 204],
    [422, 200],
  ]).toContainEqual([published.status, removed.status])
  if (isPublished) expect(String(removed.body['code'])).toMatch(/_in_use$/)
}

describe('a model', () => {
  const at = '/models/fast'

  test('is by a connector of the tenant to a provider of models, by id or as a provider’s default', async () => {
    expect(await errorsOf(asking('openai'))).toEqual([`${at}/connector connector_missing`])
    const id = await openai()
    expect(await errorsOf(asking(id))).toEqual([])
    expect(await errorsOf(asking('openai'))).toEqual([`${at}/connector connector_missing`])
    await Connector.updateOne({ _id: id, tenant_id: tenant.id }, { $set: { is_default: true } })
    expect(await errorsOf(asking('openai'))).toEqual([])
    const host = await insertConnector(tenant.id, 'github', 'https://api.github.com', { is_default: true })
    for (const none of [host, 'github', newId(), 'nobody'])
      expect(await errorsOf(asking(none))).toEqual([`${at}/connector connector_missing`])
  })

  test('that its provider does not have is unknown, if the provider says so', async () => {
    const id = await openai()
    expect(await errorsOf(asking(id, 'gpt-5o'))).toEqual([`${at}/model model_unknown`])
    expect(vendors.paths.at(-1)).toBe('/openai/models/gpt-5o')
    const compatible = await insertConnector(tenant.id, 'openai_compatible', `${vendors.url}/open`)
    expect(await errorsOf(asking(compatible, 'gpt-5o'))).toEqual([])
    vendors.fail(500)
    expect(await errorsOf(asking(id, 'gpt-5o'))).toEqual([])
    vendors.fail(0)
    const refused = await openai({ token: 'another key' })
    expect(await errorsOf(asking(refused, 'gpt-5o'))).toEqual([])
  })

  test('is asked for with a connector only by who may use connectors', async () => {
    const id = await openai()
    const permissions = ['workflows:read', 'workflows:update', 'workflows:publish']
    const role = { name: `role-${newId().slice(-12)}`, permissions }
    await tenant.owner.ask('POST', '/api/v1/roles', role)
    const author = aiWorkflowsOf(await tenant.user(role.name))
    const asked = vendors.paths.length
    expect(await errorsOf(asking(id, 'gpt-5o'), author)).toEqual([])
    expect(vendors.paths).toHaveLength(asked)
    const { id: workflow } = await workflows.make(asking(id))
    expect(await author.publish(workflow)).toMatchObject({
      status: 403,
      body: { permission: 'connectors:use' },
    })
    expect(await workflows.versions(workflow)).toEqual([])
    expect(await workflows.publish(workflow)).toMatchObject({ status: 201 })
  })
})

describe('a tool', () => {
  const schema = { type: 'object', properties: { query: { type: 'string' } }, required: ['query'] }
  const at = '/nodes/it'

  test('is found by id and name, and takes what its schema says', async () => {
    const http = { kind: 'http', method: 'GET', url: 'https://api.example/{query}', input_schema: schema }
    const { id, name } = await tools.make(http)
    for (const reference of [id, name])
      expect(await errorsOf(calling(reference, { arguments: { query: '${input.text}' } }))).toEqual([])
    expect(await errorsOf(calling(name, { arguments: { query: 1 } }))).toEqual([
      `${at}/arguments/query type_mismatch`,
    ])
    expect(await errorsOf(calling(name, { name: 'part' }))).toEqual([`${at}/tool tool_missing`])
    expect(await errorsOf(calling('gone'))).toEqual([`${at}/tool tool_missing`])
    const theirs = await toolsOf((await makeTenant()).owner).make(http)
    expect(await errorsOf(calling(theirs.id))).toEqual([`${at}/tool tool_missing`])
  })

  test('of a server is one that the server listed last, with its schemas', async () => {
    const server = { kind: 'mcp', transport: 'auto', url: 'https://mcp.example/mcp' }
    const { id, name } = await tools.make(server)
    const search = { name: 'search', arguments: { query: 1 } }
    expect(await errorsOf(calling(name))).toEqual([`${at}/name invalid_field`])
    expect(await errorsOf(calling(name, search))).toEqual([]) // nobody knows what it takes
    const listed = { ...noTool, name: 'search', input_schema: schema }
    const listing_json = keptListing({ tools: [listed], truncated: false })
    await Tool.updateOne({ _id: id, tenant_id: tenant.id }, { $set: { listing_json } })
    expect(await errorsOf(calling(name, search))).toEqual([`${at}/arguments/query type_mismatch`])
    expect(await errorsOf(calling(name, { name: 'find' }))).toEqual([`${at}/tool tool_missing`])
  })

  test('of an API is an operation of its document', async () => {
    const document = {
      openapi: '3.1.0',
      servers: [{ url: 'https://api.example' }],
      paths: { '/a': { get: { operationId: 'readA' }, parameters: [] } },
    }
    const { name } = await tools.make({ kind: 'openapi', document })
    expect(await errorsOf(calling(name, { name: 'readA' }))).toEqual([])
    expect(await errorsOf(calling(name, { name: 'readB' }))).toEqual([`${at}/tool tool_missing`])
    const { name: elsewhere } = await tools.make({ kind: 'openapi', url: 'https://api.example/openapi.json' })
    expect(await errorsOf(calling(elsewhere, { name: 'any' }))).toEqual([])
  })
})

test('A collection is one of the tenant that can be searched', async () => {
  const { name } = await insertCollection(tenant.id)
  const { name: failed } = await insertCollection(tenant.id, 'error')
  expect(await errorsOf(searching(name))).toEqual([])
  for (const none of [failed, 'gone'])
    expect(await errorsOf(searching(none))).toEqual(['/nodes/it/collection collection_missing'])
})

describe('a workflow in a workflow', () => {
  const at = '/nodes/it/workflow'

  test('is a published one, by id or name, with the types of its version', async () => {
    const { id, name } = await workflows.published(echo)
    const draft = await workflows.make(echo)
    for (const reference of [id, name]) expect(await errorsOf(running(reference))).toEqual([])
    expect(await errorsOf(running(name, { version: 1 }))).toEqual([])
    for (const [reference, version] of [
      [name, 2],
      [draft.name, undefined],
      ['gone', undefined],
    ] as const)
      expect(await errorsOf(running(reference, { version }))).toEqual([`${at} workflow_missing`])
    expect(await errorsOf(running(name, { input: { text: 1 } }))).toEqual([
      '/nodes/it/input/text type_mismatch',
    ])
    const end = (field: string) =>
      specOf(
        { it: { kind: 'workflow', workflow: name, input: { text: '' } } },
        { models: {}, output: `\${nodes.it.output.${field}}` },
      )
    expect(await errorsOf(end('said'))).toEqual([])
    expect(await errorsOf(end('heard'))).toEqual(['/output unknown_reference'])
  })

  test('does not call itself, whoever else is between', async () => {
    const first = await workflows.published(echo)
    const second = await workflows.published(running(first.id))
    const third = await workflows.published(running(second.id))
    for (const { id } of [first, second, third]) {
      await workflows.change(first.id, { spec: running(id) })
      const { status, body } = await workflows.publish(first.id)
      expect([status, body['nodes']]).toEqual([422, { it: [expect.objectContaining({ code: 'cycle' })] }])
    }
  })

  test('has four below it at most', async () => {
    let below = await workflows.published(echo)
    for (let depth = 2; depth <= 5; depth++) below = await workflows.published(running(below.name))
    expect(await errorsOf(running(below.name))).toEqual([`${at} depth_too_high`])
  })

  test('of two that are published at once and call each other, one is refused', async () => {
    for (let round = 0; round < 5; round++) {
      const one = await workflows.published(echo)
      const two = await workflows.published(echo)
      await workflows.change(one.id, { spec: running(two.id) })
      await workflows.change(two.id, { spec: running(one.id) })
      const answers = await Promise.all([one, two].map(({ id }) => workflows.publish(id)))
      expect(answers.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([201, 422])
    }
  })
})

const publishing = async (spec: object) => workflows.publish((await workflows.make(spec)).id)
const notCallable = (pointer: string) => ({
  status: 422,
  body: {
    nodes: {
      it: [{ pointer, code: 'tool_not_callable', message: expect.stringContaining('is a stdio server') }],
    },
  },
})

test('a server of stdio is refused as a tool, before anything runs', async () => {
  const { id: server } = await tools.make({ kind: 'mcp', transport: 'stdio', command: 'node' })
  expect(await publishing(calling(server, { name: 'read' }))).toMatchObject(notCallable('/nodes/it/tool'))
  const connector = await openai()
  const it = {
    kind: 'llm',
    model: 'fast',
    messages: [{ role: 'user', content: 'hello' }],
    tools: [{ tool: server }],
  }
  const models = { fast: { connector, model: 'gpt-4o-mini' } }
  expect(await publishing(specOf({ it }, { models }))).toMatchObject(notCallable('/nodes/it/tools/0'))
})

describe('what a published workflow uses', () => {
  const forced = '?force=true'
  const search = {
    kind: 'http',
    method: 'GET',
    url: 'https://api.example.com/search',
    input_schema: { type: 'object', properties: {} },
  }
  const tool = async () => (await tools.make(search)).id

  test('is listed with the version', async () => {
    const connector = await openai()
    const { id } = await workflows.published(asking(connector))
    expect((await workflows.version(id, 1)).uses).toEqual([
      { kind: 'connector', reference: connector, id: connector, version: null },
    ])
    const called = await workflows.published(echo)
    const caller = await workflows.published(running(called.name, { version: 1 }))
    expect((await workflows.version(caller.id, 1)).uses).toEqual([
      { kind: 'workflow', reference: called.name, id: called.id, version: 1 },
    ])
  })

  test('is deleted by force only: a tool', async () => {
    const id = await tool()
    const workflow = await workflows.published(calling(id))
    expect(await tools.delete(id)).toMatchObject(inUse('tool', workflow))
    expect(await tools.get(id)).toMatchObject({ id })
    expect(await tenant.owner.ask('DELETE', `/api/v1/tools/${id}${forced}`)).toMatchObject({ status: 204 })
    expect(await workflows.validate(workflow.id)).toMatchObject({ status: 422 })
    // What was published is published.
    expect(await workflows.publish(workflow.id)).toMatchObject({ status: 200, body: { version: 1 } })
  })

  test('is deleted by force only: a connector', async () => {
    const id = await openai()
    const workflow = await workflows.published(asking(id))
    expect(await connectors.delete(id)).toMatchObject(inUse('connector', workflow))
    expect(await connectors.get(id)).toMatchObject({ status: 'active' })
    expect(await connectors.delete(id, forced)).toMatchObject({ status: 200 })
  })

  test('is deleted by force only: a collection', async () => {
    const { name } = await insertCollection(tenant.id)
    const workflow = await workflows.published(searching(name))
    const path = `/api/v1/rag/collections/${name}`
    expect(await tenant.owner.ask('DELETE', path)).toMatchObject(inUse('collection', workflow))
    expect(await tenant.owner.get(path)).toMatchObject({ status: 'ready', operation_id: null })
  })

  test('is deleted by force only: another workflow', async () => {
    const called = await workflows.published(echo)
    const caller = await workflows.published(running(called.id))
    expect(await workflows.delete(called.id)).toMatchObject(inUse('workflow', caller))
    expect(await workflows.versions(called.id)).toHaveLength(1)
    expect(await workflows.delete(called.id, forced)).toMatchObject({ status: 204 })
    expect(await workflows.delete(caller.id)).toMatchObject({ status: 204 })
  })

  test('counts for the version published last alone, and for no draft', async () => {
    const [former, later] = [await tool(), await tool()]
    const { id } = await workflows.published(calling(former))
    await workflows.change(id, { spec: calling(later) })
    expect(await tools.delete(later)).toMatchObject({ status: 204 })
    const third = await tool()
    await workflows.change(id, { spec: calling(third) })
    await workflows.publish(id)
    expect(await tools.delete(former)).toMatchObject({ status: 204 })
    expect(await tools.delete(third)).toMatchObject({ status: 409 })
    await workflows.delete(id)
    expect(await tools.delete(third)).toMatchObject({ status: 204 })
  })

  test('as a provider’s default may go while there is another connector', async () => {
    use(await makeTenant())
    const [first, second] = [await openai({ is_default: true }), await openai()]
    const workflow = await workflows.published(asking('openai'))
    expect((await workflows.version(workflow.id, 1)).uses).toMatchObject([{ reference: 'openai', id: null }])
    expect(await connectors.delete(first)).toMatchObject({ status: 200 })
    expect(await connectors.get(second)).toMatchObject({ is_default: true })
    expect(await connectors.delete(second)).toMatchObject(inUse('connector', workflow))
  })

  test('is there when the publication is, however the two race', async () => {
    for (let round = 0; round < 5; round++) {
      const one = await tool()
      await race(calling(one), () => tools.delete(one))
      const connector = await openai()
      await race(asking(connector), () => connectors.delete(connector))
      const called = await workflows.published(echo)
      await race(running(called.id), () => workflows.delete(called.id))
    }
  })
})
