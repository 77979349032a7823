import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { runWorkflowId } from '../../lib/operation-workflows.ts'
import { temporalClient } from '../../lib/temporal.ts'
import { AiWorkflow } from '../../models/ai/ai-workflows.ts'
import { AiRunNode } from '../../models/ai/run-node-records.ts'
import { removeOldRuns } from '../../models/ai/run-removal.ts'
import { AiRun } from '../../models/ai/runs.ts'
import { UnwantedBlob } from '../../models/blobs.ts'
import { specOf } from '../support/ai/specs.ts'
import { aiWorkflowsOf, type RunNodeBody } from '../support/clients/ai-workflows.ts'
import { eventually } from '../support/eventually.ts'
import { decodedHistory, textOfHistory } from '../support/histories.ts'
import { blocksOf, pageOf } from '../../script/lib/pages.ts'
import { openShell } from '../support/paste.ts'
import { mistakeAt } from '../support/refusals.ts'
import { facts, stackSettings } from '../support/stack.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'

// Runs of a deployed workflow, from their acceptance to their removal.

const temporal = temporalClient(stackSettings())
let tenant: TestTenant
let workflows: ReturnType<typeof aiWorkflowsOf>
beforeAll(async () => {
  tenant = await makeTenant()
  workflows = aiWorkflowsOf(tenant.owner)
})
afterAll(async () => {
  await removeTenants()
  await temporal.connection.close()
})

const plain = { models: {}, budget: { wall_sec: 600 } }

async function deployed(nodes: Record<string, unknown>, more: Record<string, unknown> = {}): Promise<string> {
  const { id } = await workflows.published(specOf(nodes, { ...plain, ...more }))
  await (await workflows.deploy(id)).operation.success()
  return id
}
const undeploy = async (id: string): Promise<void> => {
  await (await workflows.undeploy(id)).operation.success()
}

const byNode = (nodes: RunNodeBody[]) => Object.fromEntries(nodes.map((one) => [one.node, one]))

/** Routes a text by its length. */
const routing = {
  route: {
    kind: 'switch',
    cases: [{ name: 'short', when: 'size(input.text) < 4' }],
    default: 'long',
  },
  brief: { kind: 'template', needs: ['route.short'], value: 'brief: ${input.text}' },
  much: { kind: 'template', needs: ['route.long'], value: { much: '${input.text}' } },
  never: { kind: 'template', needs: ['route'], when: 'size(input.text) == 0', value: 'nothing' },
  reply: { kind: 'merge', needs: ['brief', 'much', 'never'], take: 'object' },
}
const output = { reply: '${nodes.reply.output}', route: '${nodes.route.output}' }

describe('a run of a deployed workflow', () => {
  let id: string
  beforeAll(async () => {
    id = await deployed(routing, { output })
  })
  afterAll(() => undeploy(id))

  test('takes each node once, skips what is not wanted, and ends with the output', async () => {
    const run = await workflows.run(id, { text: 'abc' }, '?wait=60')
    expect(run).toMatchObject({
      workflow_id: id,
      version: 1,
      trigger: 'manual',
      status: 'succeeded',
      error: null,
      input: { text: 'abc' },
      output: { reply: { brief: 'brief: abc' }, route: 'short' },
    })
    expect(byNode(run.nodes)).toMatchObject({
      route: { status: 'succeeded', case: 'short', attempt: 1 },
      brief: { status: 'succeeded', attempt: 1 },
      much: { status: 'skipped', attempt: null },
      never: { status: 'skipped', attempt: 1 },
      reply: { status: 'succeeded', attempt: 1 },
    })
    expect(run.nodes).toHaveLength(5)
    expect(await workflows.getRun(id, run.id)).toEqual(run)
    const node = await workflows.runNode(id, run.id, 'brief')
    expect(node).toMatchObject({ node: 'brief', status: 'succeeded', output: 'brief: abc', output_bytes: 12 })
    expect(await workflows.runNode(id, run.id, 'much')).toMatchObject({ status: 'skipped', output: null })
  })

  test('answers at once without `wait`, and again when it has ended', async () => {
    const { status, headers, body } = await workflows.askRun(id, { input: { text: 'longer' } })
    expect(status).toBe(201)
    expect(headers.get('location')).toBe(`/api/v1/workflows/${id}/runs/${String(body['id'])}`)
    expect(['queued', 'running']).toContain(body['status'])
    const run = await workflows.endOfRun(id, String(body['id']))
    expect(run).toMatchObject({ status: 'succeeded', output: { reply: { much: { much: 'longer' } } } })
  })

  test('is the same run for the same Idempotency-Key, also with `wait`', async () => {
    const headers = { 'idempotency-key': `run-${id}` }
    const ask = () => workflows.askRun(id, { input: { text: 'once' } }, '?wait=60', headers)
    const [first, second] = await Promise.all([ask(), ask()])
    const third = await ask()
    expect([first, second, third].map(({ status }) => status)).toEqual([201, 201, 201])
    const ids = [first, second, third].map(({ body }) => body['id'])
    expect(new Set(ids).size).toBe(1)
    expect(third.body).toMatchObject({ status: 'succeeded' })
    const other = await workflows.askRun(id, { input: { text: 'other' } }, '?wait=60', headers)
    expect(other).toMatchObject({ status: 422, body: { code: 'idempotency_mismatch' } })
  })

  test('keeps the bucket of its key, and counts as open until it ends', async () => {
    const runs = await Promise.all(
      ['a', 'a', 'b'].map((canary_key) =>
        workflows.askRun(id, { input: { text: 'x' }, canary_key }, '?wait=60'),
      ),
    )
    const records = await AiRun.find({
      tenant_id: tenant.id,
      _id: { $in: runs.map(({ body }) => String(body['id'])) },
    })
      .sort({ canary_key: 1 })
      .lean()
    const [a, again, b] = records.map(({ bucket }) => bucket)
    expect(again).toBe(a)
    expect(b).not.toBe(a)
    const workflow = await AiWorkflow.findOne({ _id: id, tenant_id: tenant.id }).lean()
    expect(workflow?.runs_open).toBe(0)
  })

  test('is refused an input that does not fit its schema, and leaves nothing then', async () => {
    const before = await AiRun.countDocuments({ tenant_id: tenant.id, workflow_id: id })
    for (const [input, pointer] of [
      [{}, '/input'],
      [{ text: 7 }, '/input/text'],
      [null, '/input'],
      [{ text: 'x', count: 'seven' }, '/input/count'],
    ] as const)
      expect(await workflows.askRun(id, { input })).toMatchObject(mistakeAt(pointer))
    expect(await AiRun.countDocuments({ tenant_id: tenant.id, workflow_id: id })).toBe(before)
    expect((await AiWorkflow.findOne({ _id: id, tenant_id: tenant.id }).lean())?.runs_open).toBe(0)
  })

  test('is listed with the others, the newest first, page by page', async () => {
    const ids: string[] = []
    for (let at = 0; at < 5; at++) ids.push((await workflows.run(id, { text: `${at}` }, '?wait=60')).id)
    const first = await workflows.runs(id, '?limit=2')
    expect(first.items.map((one) => one.id)).toEqual([ids[4], ids[3]])
    const second = await workflows.runs(id, `?limit=2&before=${first.next}`)
    expect(second.items.map((one) => one.id)).toEqual([ids[2], ids[1]])
    const all: string[] = []
    for (let next: string | null = ''; next !== null; ) {
      const page: Awaited<ReturnType<typeof workflows.runs>> = await workflows.runs(
        id,
        `?limit=3${next && `&before=${next}`}`,
      )
      all.push(...page.items.map((one) => one.id))
      next = page.next
    }
    expect(all.slice(0, 5)).toEqual(ids.toReversed())
    expect(all).toEqual(all.toSorted().toReversed())
    expect(all).toHaveLength(await AiRun.countDocuments({ tenant_id: tenant.id, workflow_id: id }))
  })

  test('is not run, read or cancelled by who may not, nor by another tenant', async () => {
    const run = await workflows.run(id, { text: 'mine' }, '?wait=60')
    const stranger = aiWorkflowsOf((await makeTenant()).owner)
    const viewer = aiWorkflowsOf(await tenant.user('viewer'))
    expect(await stranger.askRun(id, { input: { text: 'x' } })).toMatchObject({ status: 404 })
    expect(await stranger.askCancel(id, run.id)).toMatchObject({ status: 404 })
    expect(await viewer.askRun(id, { input: { text: 'x' } })).toMatchObject({ status: 403 })
    expect(await viewer.askCancel(id, run.id)).toMatchObject({ status: 403 })
    expect((await viewer.getRun(id, run.id)).id).toBe(run.id)
  })

  test('is not cancelled when it has ended', async () => {
    const run = await workflows.run(id, { text: 'done' }, '?wait=60')
    expect(await workflows.askCancel(id, run.id)).toMatchObject({
      status: 409,
      body: { code: 'state_conflict', state: 'succeeded' },
    })
  })
})

describe('a run fails', () => {
  test('by a node without a value, unless its `on_error` says otherwise', async () => {
    const first = '${input.tags[0]}'
    const id = await deployed(
      {
        strict: { kind: 'template', when: 'input.text == "strict"', value: first },
        mild: { kind: 'template', value: first, on_error: { value: 'none' } },
        bold: { kind: 'template', value: first, on_error: { goto: 'rescue' } },
        rescue: { kind: 'template', value: '${nodes.bold.error.code}' },
        all: { kind: 'merge', needs: ['mild', 'bold', 'rescue'], take: 'object' },
      },
      { output: '${nodes.all.output}' },
    )
    const mild = await workflows.run(id, { text: 'mild', tags: [] }, '?wait=60')
    expect(mild).toMatchObject({
      status: 'succeeded',
      output: { mild: 'none', rescue: 'expression_failed' },
    })
    expect(byNode(mild.nodes)).toMatchObject({
      mild: { status: 'failed', error: { code: 'expression_failed' }, attempt: 1 },
      bold: { status: 'failed', attempt: 1 },
      rescue: { status: 'succeeded' },
    })
    const strict = await workflows.run(id, { text: 'strict', tags: [] }, '?wait=60')
    expect(strict).toMatchObject({
      status: 'failed',
      error: { code: 'expression_failed', node: 'strict' },
      output: null,
    })
    await undeploy(id)
  })

  test('by an expression that would take hours, and its runner goes on', async () => {
    const hundred = `[${Array.from({ length: 100 }, (_, at) => at).join()}]`
    const rounds = ['a', 'b', 'c', 'd', 'e'].reduceRight(
      (inner, name) => `${hundred}.all(${name}, ${inner})`,
      'a + b + c + d + e >= 0',
    )
    const id = await deployed(
      {
        bomb: { kind: 'template', when: 'input.text == "bomb"', value: `\${${rounds}}` },
        // JavaScript would try each way to divide the text.
        pattern: { kind: 'template', value: '${re(input.text, "(a+)+$")}' },
      },
      { output: '${nodes.pattern.output}' },
    )
    const error = { code: 'expression_took_too_long', node: 'bomb' }
    for (const text of ['bomb', 'bomb', `${'a'.repeat(100_000)}!`]) {
      const end = await workflows.run(id, { text }, '?wait=60')
      expect(end).toMatchObject(
        text === 'bomb' ? { status: 'failed', error } : { status: 'succeeded', output: false },
      )
    }
    await undeploy(id)
  })

  test('by its output', async () => {
    const say = { kind: 'template', value: 'hello' }
    const id = await deployed({ say }, { output: '${input.tags[7]}' })
    expect(await workflows.run(id, { text: 'x', tags: [] }, '?wait=60')).toMatchObject({
      status: 'failed',
      error: { code: 'expression_failed', node: null },
    })
    await undeploy(id)
  })
})

/** Nodes of which each puts the output of the one before into one more object. */
const chain = (name: string, length: number) =>
  Object.fromEntries(
    Array.from({ length }, (_, at) => [
      `${name}${at}`,
      at === 0
        ? { kind: 'template', value: { deep: '${input.text}' } }
        : {
            kind: 'template',
            needs: [`${name}${at - 1}`],
            value: { deep: `\${nodes.${name}${at - 1}.output}` },
          },
    ]),
  )

// One chain is one activity. Of two at once each node is one, until one of them has ended.
test.each([
  ['one chain', ['a']],
  ['two chains at once', ['a', 'b']],
])('%s of ten references has the value at its end, ten levels deep', async (_, names) => {
  const length = 10
  const path = Array.from({ length }, () => 'deep').join('.')
  const nodes = Object.assign({}, ...names.map((name) => chain(name, length))) as Record<string, unknown>
  const id = await deployed(nodes, {
    output: names.map((name) => `\${nodes.${name}${length - 1}.output.${path} + " is ${name}"}`),
  })
  const run = await workflows.run(id, { text: 'here' }, '?wait=60')
  expect(run).toMatchObject({ status: 'succeeded', output: names.map((name) => `here is ${name}`) })
  expect(Object.fromEntries(run.nodes.map(({ node, status }) => [node, status]))).toEqual(
    Object.fromEntries(Object.keys(nodes).map((node) => [node, 'succeeded'])),
  )
  for (const name of names)
    expect(await workflows.runNode(id, run.id, `${name}${length - 1}`)).toMatchObject({
      output: path.split('.').reduceRight<unknown>((inner, key) => ({ [key]: inner }), 'here'),
    })
  const { events } = await decodedHistory(temporal, runWorkflowId(run.id))
  const activities = events.filter((event) => event.activityTaskScheduledEventAttributes)
  if (names.length === 1) expect(activities).toHaveLength(1)
  else expect(activities.length).toBeGreaterThan(length)
  await undeploy(id)
})

test('outputs of megabytes pass by Temporal, and are gone with their run', async () => {
  const many = '${[1,2,3,4,5,6,7,8,9,10].map(x, input.text + input.text + input.text + input.text)}'
  const id = await deployed(
    {
      large: { kind: 'template', value: many },
      again: { kind: 'template', needs: ['large'], value: '${nodes.large.output}' },
    },
    { output: '${nodes.again.output[9]}' },
  )
  const text = 'x'.repeat(80_000)
  const run = await workflows.run(id, { text }, '?wait=60')
  expect(run).toMatchObject({ status: 'succeeded', output: text.repeat(4) })
  const { large, again } = byNode(run.nodes)
  expect(large?.output_bytes).toBeGreaterThan(3_000_000)
  expect(again?.output_bytes).toBe(large?.output_bytes)
  const node = await workflows.runNode(id, run.id, 'again')
  expect((node.output as string[]).at(-1)).toBe(text.repeat(4))

  const history = textOfHistory(await decodedHistory(temporal, runWorkflowId(run.id)))
  expect(history.length).toBeLessThan(100_000)
  expect(history).toContain(run.id)
  expect(history).not.toContain('xxxx')

  const [record, nodes] = [
    await AiRun.findOne({ _id: run.id, tenant_id: tenant.id }).lean(),
    await AiRunNode.find({ tenant_id: tenant.id, run_id: run.id }).lean(),
  ]
  const blobs = [record?.output, ...nodes.map((one) => one.output)].map((value) => value?.blob?.key)
  expect(blobs.every((key) => typeof key === 'string')).toBe(true)
  await undeploy(id)
  expect(await workflows.delete(id)).toMatchObject({ status: 204 })
  await eventually(async () => {
    await removeOldRuns(90)
    return (await AiRun.countDocuments({ tenant_id: tenant.id, workflow_id: id })) === 0
  })
  expect(await AiRunNode.countDocuments({ tenant_id: tenant.id, run_id: run.id })).toBe(0)
  // They are removed by a worker, which may have begun.
  const left = await UnwantedBlob.find({ _id: { $in: blobs as string[] } }).lean()
  for (const { remove_at } of left) expect(remove_at.getTime()).toBeLessThanOrEqual(Date.now())
})

test('The examples of docs/ai-workflows.md run a workflow', async () => {
  const shell = openShell({ API: facts().api_url, TOKEN: tenant.owner.token })
  try {
    const [helpers = ''] = blocksOf(await pageOf('vpcs'))
    await shell.paste(helpers.slice(0, helpers.indexOf('\n\n')))
    const [publishing = '', running = '', ...more] = blocksOf(await pageOf('ai-workflows'))
    expect(more).toEqual([])
    await shell.paste(publishing)
    expect(await shell.paste(running)).toContain('"output":"Hello you"')
  } finally {
    await shell.close()
  }
})

describe('an undeployment', () => {
  test('fails the runs that are open, also many, and leaves none', async () => {
    const id = await deployed(routing, { output })
    const runs = await Promise.all(
      Array.from({ length: 50 }, (_, at) => workflows.run(id, { text: `run ${at}` })),
    )
    await undeploy(id)
    const ends = await Promise.all(runs.map((run) => workflows.endOfRun(id, run.id)))
    for (const { status, error } of ends)
      if (status !== 'succeeded') expect([status, error]).toMatchObject(['failed', { code: 'undeployed' }])
    expect(await AiRun.countDocuments({ tenant_id: tenant.id, workflow_id: id, open: true })).toBe(0)
    expect((await AiWorkflow.findOne({ _id: id, tenant_id: tenant.id }).lean())?.runs_open).toBe(0)
    expect(await workflows.askRun(id, { input: { text: 'late' } })).toMatchObject({
      status: 409,
      body: { code: 'not_deployed' },
    })
    for (const run of runs)
      await eventually(async () => {
        const { status } = await temporal.workflow.getHandle(runWorkflowId(run.id)).describe()
        return status.name !== 'RUNNING'
      })
    expect(await workflows.delete(id)).toMatchObject({ status: 204 })
  })
})
