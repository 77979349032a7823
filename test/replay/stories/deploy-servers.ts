import { tenant, type Stories } from '../world.ts'

const { deployServers } = tenant.owner

/** The tenant has one deploy server: each story begins with what the one before has left. */
export const deployServerStories: Stories = {
  'createDeployServer.ready': async () => (await deployServers.create()).operation,
  'updateDeployServer.grown': async () =>
    (await deployServers.update(await theServer(), { worker_count: 2, worker_instance_type: 'small' }))
      .operation,
  'updateDeployServer.shrunk': async () =>
    (await deployServers.update(await theServer(), { worker_count: 1, worker_disk_gib: 3 })).operation,
  'deleteDeployServer.deleted': async () => (await deployServers.delete(await theServer())).operation,
  'createDeployServer.cancelled': async () => {
    const { operation } = await deployServers.create()
    await operation.cancel()
    return operation
  },
}

async function theServer(): Promise<string> {
  const { body } = await tenant.owner.ask('POST', '/api/v1/deploy-servers')
  return String(body['id'])
}
