import { afterAll, beforeAll, beforeEach, expect, test } from '@jest/globals'
import { bounds } from '../../lib/ai/bounds.ts'
import { runWorkflowId } from '../../lib/operation-workflows.ts'
import { temporalClient } from '../../lib/temporal.ts'
import { AiRunNode } from '../../models/ai/run-node-records.ts'
import { instanceKinds } from '../../models/compute/instance-kinds.ts'
import { LlmCall } from '../../models/llm/calls.ts'
import { specOf } from '../support/ai/specs.ts'
import { insertConnector } from '../support/ai/tenant-things.ts'
import { aiWorkflowsOf, type RunBody } from '../support/clients/ai-workflows.ts'
import { engine } from '../support/engine.ts'
import { eventually } from '../support/eventually.ts'
import { decodedHistory } from '../support/histories.ts'
import { text } from '../support/model-provider/answers.ts'
import { type ModelProvider, startModelProvider } from '../support/model-provider/server.ts'
import { modelProviderPorts, stackSettings } from '../support/stack.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'

// Maps of one deployed workflow: the text of a run's input says which of them it carries out.

const temporal = temporalClient(stackSettings())
const atOnce = 4
const { mapAtOnce } = bounds
const when = (word: string) => ({ when: `input.text == '${word}'` })
/** Calls of the model that is asked for items: from this one on, they wait. */
const held = { from: Infinity, open: 0, most: 0, release: Promise.withResolvers<void>() }
/** Calls of the model `wide`, of which each waits until it is released. The longest wait is the first. */
const wide = { open: [] as (() => void)[], most: 0 }
let provider: ModelProvider
let tenant: TestTenant
let workflows: ReturnType<typeof aiWorkflowsOf>
let id: string

beforeAll(async () => {
  provider = await startModelProvider((model, count) => {
    if (model === 'wide') {
      const { promise, resolve } = Promise.withResolvers<void>()
      wide.most = Math.max(wide.most, wide.open.push(resolve))
      return { waits: { after: 0, for: promise } }
    }
    if (count < held.from) return {}
    held.most = Math.max(held.most, ++held.open)
    return { waits: { after: 0, for: held.release.promise.then(() => held.open--) } }
  }, modelProviderPorts.maps)
  tenant = await makeTenant()
  workflows = aiWorkflowsOf(tenant.owner)
  const connector = await insertConnector(tenant.id, 'openai_compatible', provider.base_url, {
    token: 'planted-secret',
  })
  const models = Object.fromEntries(['items', 'wide'].map((model) => [model, { connector, model }]))
  const messages = [{ role: 'user', content: '${index}: ${item}' }]
  const map = { kind: 'map', items: 'input.tags' }
  const nodes = {
    many: { ...map, ...when('many'), do: { kind: 'template', value: '${item} ${index}' } },
    asked: { ...map, ...when('asked'), at_once: atOnce, do: { kind: 'llm', model: 'items', messages } },
    wide: { ...map, ...when('wide'), at_once: mapAtOnce, do: { kind: 'llm', model: 'wide', messages } },
    mild: {
      ...map,
      ...when('mild'),
      do: { kind: 'template', value: '${input.tags[index + 1]}', on_error: { value: 'none' } },
    },
    strict: { ...map, ...when('strict'), do: { kind: 'template', value: '${input.tags[index + 1]}' } },
    all: { kind: 'merge', needs: ['many', 'asked', 'wide', 'mild', 'strict'], take: 'first' },
  }
  const budget = { tokens: 1_000_000, wall_sec: 3_600 }
  id = (await workflows.published(specOf(nodes, { models, budget, output: '${nodes.all.output}' }))).id
  await (await workflows.deploy(id)).operation.success()
})
beforeEach(() => {
  Object.assign(held, { from: Infinity, open: 0, most: 0, release: Promise.withResolvers<void>() })
})
afterAll(async () => {
  held.release.resolve()
  for (const release of wide.open) release()
  await removeTenants()
  await provider.close()
  await temporal.connection.close()
})

const tags = (length: number): string[] => Array.from({ length }, (_, at) => `tag ${at}`)
const nodeOf = (run: RunBody, name: string) => run.nodes.find(({ node }) => node === name)
const itemsOf = (run: string) =>
  AiRunNode.countDocuments({ tenant_id: tenant.id, run_id: run, map: { $ne: null } })

test('a map of 1,000 items has the outputs in their order, few events, and leaves no items', async () => {
  const { id: run } = await workflows.run(id, { text: 'many', tags: tags(1_000) })
  const end = await workflows.endOfRun(id, run)
  expect(end).toMatchObject({ status: 'succeeded', error: null })
  const output = tags(1_000).map((tag, at) => `${tag} ${at}`)
  expect(end.output).toEqual(output)
  expect(nodeOf(end, 'many')).toMatchObject({
    status: 'succeeded',
    items: { all: 1_000, ended: 1_000, failed: 0 },
    output_bytes: JSON.stringify(output).length,
  })
  // Of the map, the merge and the run itself: the items’ own are gone.
  expect(end.output_bytes).toBe(3 * JSON.stringify(output).length)
  expect(await itemsOf(run)).toBe(0)
  const history = await decodedHistory(temporal, runWorkflowId(run))
  expect(JSON.stringify(history).length).toBeLessThan(100_000)
})

test('an item that fails has another value, or ends the map', async () => {
  const mild = await workflows.run(id, { text: 'mild', tags: tags(3) }, '?wait=60')
  expect(mild).toMatchObject({ status: 'succeeded', output: ['tag 1', 'tag 2', 'none'] })
  expect(nodeOf(mild, 'mild')).toMatchObject({ items: { all: 3, ended: 3, failed: 1 } })
  const strict = await workflows.run(id, { text: 'strict', tags: tags(3) }, '?wait=60')
  expect(strict).toMatchObject({ status: 'failed', error: { code: 'expression_failed', node: 'strict' } })
  expect(strict.error?.message).toMatch(/^Item 2: /)
  expect(await workflows.run(id, { text: 'mild', tags: [] }, '?wait=60')).toMatchObject({ output: [] })
})

test('a runner that is killed goes on with the items that are not done, and each call is paid once', async () => {
  const before = provider.askedFor('items').length
  held.from = before + 5
  const { id: run } = await workflows.run(id, { text: 'asked', tags: tags(12) })
  await eventually(() => held.open === atOnce)
  const its = { tenant_id: tenant.id, runner: true, status: 'running' as const }
  const runner = await instanceKinds.container.model.findOne(its).lean()
  await engine.kill(runner?._id ?? '') // its engine starts it again
  held.release.resolve()
  const end = await workflows.endOfRun(id, run)
  expect(end).toMatchObject({ status: 'succeeded', output: tags(12).map(() => text) })
  // The model was asked once for each item, although the map was attempted again.
  const asked = provider.askedFor('items').slice(before)
  const contents = asked.map(({ body }) => String((body['messages'] as { content: string }[])[0]?.content))
  expect(contents).toHaveLength(12)
  expect(new Set(contents)).toEqual(new Set(tags(12).map((tag, at) => `${at}: ${tag}`)))
  const paid = await LlmCall.countDocuments({
    tenant_id: tenant.id,
    purpose_id: run,
    code: { $ne: 'kept' },
  })
  expect(paid).toBe(12)
})

test('a map carries out as many items at once as it says, and ends when its run is cancelled', async () => {
  const before = provider.askedFor('items').length
  held.from = before + 1
  const { id: run } = await workflows.run(id, { text: 'asked', tags: tags(20) })
  await eventually(() => held.most === atOnce)
  expect(await workflows.askCancel(id, run)).toMatchObject({ status: 200 })
  expect(await workflows.endOfRun(id, run)).toMatchObject({ status: 'cancelled', output: null })
  held.release.resolve()
  expect(held.most).toBe(atOnce)
  expect(provider.askedFor('items').length - before).toBe(atOnce)
  expect(await AiRunNode.countDocuments({ tenant_id: tenant.id, run_id: run, status: 'running' })).toBe(0)
})

test('a map makes the most calls at once that one may, and the next when one of them has ended', async () => {
  const all = 60
  const { id: run } = await workflows.run(id, { text: 'wide', tags: tags(all) })
  for (let asked = mapAtOnce; asked <= all; asked++) {
    await eventually(() => provider.askedFor('wide').length === asked)
    expect(wide.open).toHaveLength(mapAtOnce)
    wide.open.shift()?.()
  }
  for (const release of wide.open.splice(0)) release()
  const end = await workflows.endOfRun(id, run)
  expect(end).toMatchObject({ status: 'succeeded', output: tags(all).map(() => text) })
  expect(nodeOf(end, 'wide')).toMatchObject({ items: { all, ended: all, failed: 0 } })
  expect([wide.most, provider.askedFor('wide').length]).toEqual([16, all])
})
