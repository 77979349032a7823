import { BackupPart } from '../../../models/deploy/backup-parts.ts'
import { spoil } from '../../support/blobs.ts'
import { databasesOf } from '../../support/clients/databases.ts'
import { insideOf } from '../../support/database-insides.ts'
import { makeDatabaseImages } from '../../support/database-images.ts'
import { tenant, type Stories } from '../world.ts'

/** On one database of a deploy server: each story begins with what the one before has left. */
export const backupStories: Stories = {
  'createBackupExecution.succeeded': async () => {
    const { databases, id, inside } = await here()
    await inside.write(id, 'redis')
    return (await databases.backUp(id)).operation
  },
  'createBackupExecution.cancelled': async () => {
    const { databases, id } = await here()
    const { operation } = await databases.backUp(id)
    await operation.cancel()
    return operation
  },
  'createBackupExecution.failed': async () => {
    const { databases, id, inside } = await here()
    await inside.runIn(id, 'mv $(command -v redis-cli) /usr/bin/other-cli')
    const { operation } = await databases.backUp(id)
    await operation.end()
    await inside.runIn(id, 'mv /usr/bin/other-cli /usr/bin/redis-cli')
    return operation
  },
  'restoreDatabase.running': async () => {
    const { databases, id, execution } = await here()
    return (await databases.restore(id, execution)).operation
  },
  'restoreDatabase.takenBack': async () => {
    const { databases, id, execution } = await here()
    const { body } = await databases.addStorage(id, '/usr/bin/redis-cli/x')
    const { operation } = await databases.restore(id, execution)
    await operation.end()
    await databases.removeStorage(id, String(body['id']))
    return operation
  },
  'upgradeDatabase.running': async () => {
    const { databases, id } = await here()
    return (await databases.upgrade(id, '8.2.1')).operation
  },
  'restoreDatabase.returned': async () => {
    const { databases, id } = await here()
    const { former_volumes } = await databases.get(id)
    return (await databases.goBack(id, former_volumes[0]?.id ?? '')).operation
  },
  'createDatabase.restored': async () => {
    const { databases, execution } = await here()
    return (await databases.create({ name: 'copy', execution_id: execution })).operation
  },
  'verifyBackupExecution.succeeded': async () => {
    const { databases, execution } = await here()
    return (await databases.verify(execution)).operation
  },
  'verifyBackupExecution.damaged': async () => {
    const { databases, execution } = await here()
    const part = await BackupPart.findOne({ execution_id: execution, tenant_id: tenant.id }).lean()
    if (part) await spoil(part.blob)
    return (await databases.verify(execution)).operation
  },
  'deleteBackupExecution.deleted': async () => {
    const { databases, execution } = await here()
    return (await databases.deleteExecution(execution)).operation
  },
}

/** The database, and the oldest backup that succeeded or is damaged. */
async function here() {
  const servers = tenant.owner.deployServers
  const { items } = await tenant.owner.get<{ items: { id: string }[] }>('/api/v1/deploy-servers')
  const server = items[0] ? await servers.get(items[0].id) : await servers.make()
  const databases = databasesOf(tenant.owner, server.id)
  await makeDatabaseImages('redis')
  const found = (await databases.list()).find(({ name }) => name === 'backed-up')
  const { id } = found ?? (await databases.make({ name: 'backed-up', version: '7.4.5' }))
  const whole = (await databases.executions()).filter(({ size_bytes }) => size_bytes !== null)
  const execution = whole.toSorted((a, b) => (a.id < b.id ? -1 : 1))[0]?.id ?? ''
  return { databases, id, execution, inside: insideOf(tenant, server) }
}
