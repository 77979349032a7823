import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { AiWorkflow } from '../../models/ai/ai-workflows.ts'
import { AiDeployment } from '../../models/ai/deployments.ts'
import { Runner } from '../../models/ai/runners.ts'
import { specOf } from '../support/ai/specs.ts'
import { aiWorkflowsOf } from '../support/clients/ai-workflows.ts'
import { toolsOf } from '../support/clients/tools.ts'
import type { ContainerBody } from '../support/client.ts'
import { engine } from '../support/engine.ts'
import { makeOperator, makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'

// A published version and its runner, from the deployment to the end.

let tenant: TestTenant
let workflows: ReturnType<typeof aiWorkflowsOf>
beforeAll(async () => {
  tenant = await makeTenant()
  workflows = aiWorkflowsOf(tenant.owner)
})
afterAll(removeTenants)

const saying = (text: string): object =>
  specOf({ say: { kind: 'template', value: text } }, { models: {}, output: null })

/** The containers of a deployment, which lists leave out otherwise. */
const containersOf = async (deploymentId: string): Promise<ContainerBody[]> =>
  (await tenant.owner.get<{ items: ContainerBody[] }>(`/api/v1/containers?managed_by=${deploymentId}`)).items

describe('a deployed workflow', () => {
  test('has a runner that is ready, without a network, until it is undeployed', async () => {
    const { id } = await workflows.published(saying('hello'))
    expect((await workflows.get(id))['deployment']).toBeNull()
    const { operation } = await workflows.deploy(id)
    await operation.success()
    const { deployment } = (await workflows.get(id)) as unknown as { deployment: { id: string } }
    expect(deployment).toMatchObject({ workflow_id: id, version: 1, status: 'ready', operation_id: null })

    const [container] = await containersOf(deployment.id)
    const info = await engine.only(container?.id ?? '')
    expect(info.HostConfig).toMatchObject({ NetworkMode: 'none', ReadonlyRootfs: true, CapDrop: ['ALL'] })
    expect(info.State.Running).toBe(true)
    const { items } = await tenant.owner.get<{ items: ContainerBody[] }>('/api/v1/containers')
    expect(items.map((one) => one.id)).not.toContain(container?.id)

    await (await workflows.undeploy(id)).operation.success()
    expect((await workflows.get(id))['deployment']).toBeNull()
    expect(await engine.withLabel('keelson.resource', container?.id ?? '')).toEqual([])
    expect(await Runner.countDocuments({ tenant_id: tenant.id })).toBe(0)
    expect(await workflows.delete(id)).toMatchObject({ status: 204 })
  })

  test('has one deployment, of one version, and is not deleted', async () => {
    const { id } = await workflows.published(saying('one'))
    const { operation } = await workflows.deploy(id)
    expect(await workflows.askDeploy(id)).toMatchObject({ status: 200, body: { version: 1 } })
    await workflows.change(id, { spec: saying('two') })
    expect(await workflows.publish(id)).toMatchObject({ status: 201, body: { version: 2 } })
    expect(await workflows.askDeploy(id)).toMatchObject({
      status: 409,
      body: { code: 'workflow_deployed', version: 1 },
    })
    expect(await workflows.askDeploy(id, { version: 1 })).toMatchObject({ status: 200 })
    expect(await workflows.delete(id)).toMatchObject({ status: 409, body: { code: 'workflow_deployed' } })
    expect(await workflows.delete(id, '?force=true')).toMatchObject({ status: 409 })
    await operation.success()
    await (await workflows.undeploy(id)).operation.success()
    await (await workflows.deploy(id, { version: 2 })).operation.success()
    expect((await workflows.get(id))['deployment']).toMatchObject({ version: 2, status: 'ready' })
    await (await workflows.undeploy(id)).operation.success()
  })

  test('keeps what its version uses, also if a later version does not use it', async () => {
    const tools = toolsOf(tenant.owner)
    const { id: tool } = await tools.make({
      kind: 'http',
      method: 'GET',
      url: 'https://api.example.com/search',
      input_schema: { type: 'object', properties: {} },
    })
    const call = { kind: 'tool', tool }
    const { id } = await workflows.published(specOf({ call }, { models: {}, output: null }))
    const { operation } = await workflows.deploy(id)
    await workflows.change(id, { spec: saying('nothing') })
    await workflows.publish(id)
    expect(await tools.delete(tool)).toMatchObject({ status: 409, body: { code: 'tool_in_use' } })
    await operation.success()
    await (await workflows.undeploy(id)).operation.success()
    expect(await tools.delete(tool)).toMatchObject({ status: 204 })
    expect(await workflows.askDeploy(id, { version: 1 })).toMatchObject({
      status: 409,
      body: { code: 'uses_missing' },
    })
  })

  test('that is cancelled on its way has no runner left', async () => {
    const { id } = await workflows.published(saying('late'))
    const { operation } = await workflows.deploy(id)
    await operation.cancel()
    const { state } = await operation.end()
    const { deployment } = (await workflows.get(id)) as unknown as {
      deployment: { id: string; status: string }
    }
    if (state === 'cancelled') {
      expect(deployment.status).toBe('error')
      expect(await containersOf(deployment.id)).toEqual([])
      expect(await workflows.askDeploy(id)).toMatchObject({ status: 409 })
    }
    await (await workflows.undeploy(id)).operation.success()
  })
})

test('a runner is changed by its deployment alone: its tenant reads neither its key nor a terminal', async () => {
  const { id } = await workflows.published(saying('mine'))
  await (await workflows.deploy(id)).operation.success()
  const { deployment } = (await workflows.get(id)) as unknown as { deployment: { id: string } }
  const [container] = await containersOf(deployment.id)
  const path = `/api/v1/containers/${container?.id}`
  for (const [method, below, body] of [
    ['POST', '/stop', {}],
    ['DELETE', '', undefined],
  ] as const)
    expect([below, await tenant.owner.ask(method, `${path}${below}`, body)]).toMatchObject([
      below,
      { status: 409, body: { code: 'managed' } },
    ])
  expect(JSON.stringify(await tenant.owner.ask('GET', `${path}/config-vars`))).not.toContain('RUNNER_KEY')
  await (await workflows.undeploy(id)).operation.success()
})

describe('a deployment is refused', () => {
  test('of a workflow without a version, and of a version that is not there', async () => {
    const { id } = await workflows.make(saying('draft'))
    expect(await workflows.askDeploy(id)).toMatchObject({ status: 409, body: { code: 'not_published' } })
    expect(await workflows.askDeploy(id, { version: 1 })).toMatchObject({ status: 404 })
    expect(await workflows.askUndeploy(id)).toMatchObject({ status: 404 })
  })

  test('to another tenant, and to who may not publish', async () => {
    const { id } = await workflows.published(saying('ours'))
    const stranger = aiWorkflowsOf((await makeTenant()).owner)
    const viewer = aiWorkflowsOf(await tenant.user('viewer'))
    for (const verb of ['askDeploy', 'askUndeploy'] as const) {
      expect(await stranger[verb](id)).toMatchObject({ status: 404 })
      expect(await viewer[verb](id)).toMatchObject({ status: 403 })
    }
    expect((await workflows.get(id))['deployment']).toBeNull()
  })
})

test('the deletion of a tenant ends its runners, and leaves nothing of them', async () => {
  const gone = await makeTenant()
  const its = aiWorkflowsOf(gone.owner)
  const { id } = await its.published(saying('gone'))
  await (await its.deploy(id)).operation.success()
  expect(await engine.withLabel('keelson.tenant', gone.id)).toHaveLength(1)
  const operator = await makeOperator()
  await (await operator.begin('DELETE', `/api/v1/platform/tenants/${gone.id}`)).operation.success()
  expect(await engine.withLabel('keelson.tenant', gone.id)).toEqual([])
  const left = [Runner, AiDeployment, AiWorkflow].map((model) =>
    (model as typeof Runner).countDocuments({ tenant_id: gone.id }),
  )
  expect(await Promise.all(left)).toEqual([0, 0, 0])
})
