import { makeUser } from '../../support/attached.ts'
import type { Operation } from '../../support/client.ts'
import { databasesOf } from '../../support/clients/databases.ts'
import { makeDatabaseImages } from '../../support/database-images.ts'
import { eventually } from '../../support/eventually.ts'
import { platform } from '../../support/platform.ts'
import { makeSubnet, makeVpc } from '../../support/vpcs.ts'
import { tenant, type Stories, whileHostIsAway } from '../world.ts'
import { theServer } from './deploy-servers.ts'

type User = Awaited<ReturnType<typeof makeUser>>

/** Of the last story that made them. */
const last: Partial<Record<User['plural'], { user: User; database: string }>> = {}

async function databases() {
  const server = await theServer() // makes one if there is none
  await eventually(async () => (await tenant.owner.deployServers.get(server)).status === 'ready')
  return databasesOf(tenant.owner, server)
}

async function attach(plural: User['plural']): Promise<Operation> {
  await makeDatabaseImages('redis')
  const { id: database } = await (await databases()).make()
  const user = await makeUser(tenant, plural, (await makeSubnet(tenant, (await makeVpc(tenant)).id)).id)
  last[plural] = { user, database }
  return (await user.attach(database)).operation
}

async function detach(plural: User['plural']): Promise<Operation> {
  const { user, database } = last[plural] ?? (await attach(plural).then(() => last[plural])) ?? {}
  if (!user || !database) throw new Error('nothing is attached')
  return (await user.detach(database)).operation
}

export const attachmentStories: Stories = {
  'attachDatabaseContainer.running': () => attach('containers'),
  'detachDatabaseContainer.running': () => detach('containers'),
  'attachDatabaseContainer.cancelled': async () => {
    const { user, database } = last.containers ?? {}
    if (!user || !database) throw new Error('record it with the other stories of attachments')
    const { operation } = await whileHostIsAway(() => user.attach(database))
    await operation.cancel()
    await platform.start('host')
    return operation
  },
  'attachDatabaseMicrovm.running': () => attach('microvms'),
  'restartDatabase.attached': async () =>
    (await (await databases()).restart(last.microvms?.database ?? '')).operation,
  'detachDatabaseMicrovm.running': () => detach('microvms'),
  'deleteDatabase.attached': async () => {
    const { user, database = '' } = last.containers ?? {}
    await (await user?.attach(database))?.operation.success()
    return (await (await databases()).delete(database)).operation
  },
}
