import { specOf } from '../../support/ai/specs.ts'
import { aiWorkflowsOf } from '../../support/clients/ai-workflows.ts'
import { eventually } from '../../support/eventually.ts'
import { itemsWorkflowId, runWorkflowId } from '../../../lib/operation-workflows.ts'
import { insertCanary, insertDeployment } from '../../support/ai/inserted-runs.ts'
import { modelProviderPorts } from '../../support/stack.ts'
import { type Stories, tenant } from '../world.ts'

const workflows = aiWorkflowsOf(tenant.owner)

const published = async (): Promise<string> => {
  const say = { kind: 'template', value: 'hello' }
  return (await workflows.published(specOf({ say }, { models: {}, output: null }))).id
}

const run = (workflowId: string, runId: string) => ({
  async end() {
    const { status: state } = await workflows.endOfRun(workflowId, runId)
    return { workflow_id: runWorkflowId(runId), state }
  },
})

/** A run of these nodes on a runner. */
async function ran(nodes: Record<string, unknown>, output: unknown) {
  const { id } = await workflows.published(specOf(nodes, { models: {}, output }))
  await (await workflows.deploy(id)).operation.success()
  return run(id, (await workflows.run(id, { text: 'hello' })).id)
}

/** A run that asks somebody, and calls another workflow, once by itself and once for each item of a map. */
async function waited(of: 'run' | 'items') {
  const shout = { say: { kind: 'template', value: '${input.text}!' } }
  const { id: callee } = await workflows.published(
    specOf(shout, { models: {}, output: '${nodes.say.output}' }),
  )
  await (await workflows.deploy(callee)).operation.success()
  const call = { kind: 'workflow', workflow: callee, input: { text: '${input.text}' } }
  const nodes = {
    ask: { kind: 'approve', message: 'May we?', deadline_sec: 600 },
    call: { needs: ['ask'], ...call },
    each: { kind: 'map', needs: ['ask'], items: '[1, 2, 3]', at_once: 2, do: call },
  }
  const { id } = await workflows.published(specOf(nodes, { models: {}, output: '${nodes.each.output}' }))
  await (await workflows.deploy(id)).operation.success()
  const { id: runId } = await workflows.run(id, { text: 'hello' })
  const asks = async () =>
    (await workflows.getRun(id, runId)).nodes.some(({ status }) => status === 'waiting')
  await eventually(asks)
  await workflows.askDecision(id, runId, 'ask', { approved: true })
  const whole = run(id, runId)
  return {
    async end() {
      const { workflow_id, state } = await whole.end()
      return { workflow_id: of === 'run' ? workflow_id : itemsWorkflowId(runId, 'each'), state }
    },
  }
}

/** A run that no runner takes. */
async function left(budget: object) {
  const say = { kind: 'template', value: 'hello' }
  const { id } = await workflows.published(specOf({ say }, { models: {}, budget }))
  await insertDeployment(tenant.id, id)
  return { id, runId: (await workflows.run(id, { text: 'hello' })).id }
}

const value = 'hello'
/** Where no server listens, and the platform may ask. */
const nobody = `http://127.0.0.1:${modelProviderPorts.streams}`
const fork = {
  route: { kind: 'switch', cases: [{ name: 'a', when: 'size(input.text) > 3' }], default: 'b' },
  a: { kind: 'template', needs: ['route.a'], value },
  b: { kind: 'template', needs: ['route.b'], value },
  beside: { kind: 'template', value },
  all: { kind: 'merge', needs: ['a', 'b', 'beside'], take: 'list' },
}

/** A workflow with one eval case. */
async function withCase(): Promise<string> {
  const id = await published()
  const assertion = { kind: 'equals', value: null }
  await workflows.putEval(id, { name: 'says', input: { text: 'hello' }, assertion })
  return id
}

export const aiStories: Stories = {
  'createAiEval.judged': async () => {
    const id = await withCase()
    await (await workflows.deploy(id)).operation.success()
    return (await workflows.runEvals(id)).operation
  },
  'createAiEval.cancelled': async () => {
    const id = await withCase()
    await insertDeployment(tenant.id, id)
    const { operation } = await workflows.runEvals(id)
    await eventually(async () => (await workflows.runs(id)).items.length === 1)
    await operation.cancel()
    return operation
  },
  'createAiDeployment.ready': async () => (await workflows.deploy(await published())).operation,
  'createAiDeployment.cancelled': async () => {
    const { operation } = await workflows.deploy(await published())
    await eventually(async () => (await operation.now()).step?.startsWith('starting'))
    await operation.cancel()
    return operation
  },
  'deleteAiDeployment.deleted': async () => {
    const id = await published()
    await (await workflows.deploy(id)).operation.success()
    return (await workflows.undeploy(id)).operation
  },
  'deleteAiDeployment.runs': async () => {
    const { id } = await left({ wall_sec: 600 })
    return (await workflows.undeploy(id)).operation
  },
  'deleteAiDeployment.others': async () => {
    const { id } = await left({ wall_sec: 600 })
    await insertCanary(tenant.id, id, 1, 50)
    return (await workflows.undeploy(id)).operation
  },
  'drainAiDeployment.deleted': async () => {
    const { id, runId } = await left({ wall_sec: 600 })
    await insertCanary(tenant.id, id, 1, 50)
    const { operation } = await workflows.promote(id)
    await eventually(async () => (await operation.now()).step?.startsWith('waiting'))
    await workflows.askCancel(id, runId)
    return operation
  },
  'runAiWorkflow.succeeded': () => ran(fork, '${nodes.all.output}'),
  'runAiWorkflow.failed': () =>
    ran({ fails: { kind: 'template', value: '${input.tags[0]}' }, beside: fork.beside }, null),
  'runAiWorkflow.goto': () =>
    ran(
      {
        fails: { kind: 'template', value: '${input.tags[0]}', on_error: { goto: 'rescue' } },
        rescue: { kind: 'template', value },
      },
      '${nodes.rescue.output}',
    ),
  'runAiWorkflow.row': () =>
    ran(
      {
        one: { kind: 'template', value },
        two: { kind: 'template', needs: ['one'], value },
        three: { kind: 'template', needs: ['two'], value },
      },
      '${nodes.three.output}',
    ),
  'runAiWorkflow.row-failed': () =>
    ran(
      {
        one: { kind: 'template', value },
        asks: {
          kind: 'http',
          needs: ['one'],
          method: 'GET',
          url: nobody,
          retry: { max: 1, backoff_sec: 0.1 },
        },
        two: { kind: 'template', needs: ['asks'], value },
      },
      null,
    ),
  'runAiWorkflow.waited': () => waited('run'),
  'carryOutAiItems.succeeded': () => waited('items'),
  'runAiWorkflow.cancelled': async () => {
    const { id, runId } = await left({ wall_sec: 600 })
    await eventually(async () => (await workflows.getRun(id, runId)).status === 'running')
    await workflows.askCancel(id, runId)
    return run(id, runId)
  },
  'runAiWorkflow.out-of-time': async () => {
    const { id, runId } = await left({ wall_sec: 1 })
    return run(id, runId)
  },
}
