import { specOf } from '../../support/ai/specs.ts'
import { aiWorkflowsOf } from '../../support/clients/ai-workflows.ts'
import { eventually } from '../../support/eventually.ts'
import { type Stories, tenant } from '../world.ts'

const workflows = aiWorkflowsOf(tenant.owner)

const published = async (): Promise<string> => {
  const say = { kind: 'template', value: 'hello' }
  return (await workflows.published(specOf({ say }, { models: {}, output: null }))).id
}

export const aiStories: Stories = {
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
}
