import { beforeAll, expect } from '@jest/globals'
import { BackupPart } from '../../models/deploy/backup-parts.ts'
import { EventDelivery } from '../../models/deploy/events.ts'
import { Tenant } from '../../models/identity/tenants.ts'
import { spoil } from '../support/blobs.ts'
import type { DeployServerBody } from '../support/client.ts'
import { databasesOf } from '../support/clients/databases.ts'
import { eventsOf } from '../support/clients/events.ts'
import { insideOf, rows } from '../support/database-insides.ts'
import { hasEngines, makeDatabaseImages } from '../support/database-images.ts'
import { describeEngines } from '../support/describe-engines.ts'
import { testDrawn } from '../support/drawn.ts'
import { eventually } from '../support/eventually.ts'
import { momentsOf } from '../support/moments.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// Backups and archives where the workers have no room, or the tenant has reached its limit.

let tenant: TestTenant
let server: DeployServerBody
let databases: ReturnType<typeof databasesOf>
let inside: ReturnType<typeof insideOf>

beforeAll(async () => {
  tenant = await makeTenant()
  server = await tenant.owner.deployServers.make({ worker_instance_type: 'medium' })
  if (hasEngines) await makeDatabaseImages('redis', 'postgresql')
  databases = databasesOf(tenant.owner, server.id)
  inside = insideOf(tenant, server)
})

const limit = (max_backup_gib: number) =>
  Tenant.updateOne({ _id: tenant.id }, { $set: { 'limits.max_backup_gib': max_backup_gib } })

describeEngines('a backup', () => {
  testDrawn('is read in full if no worker has room for a scratch engine, which finds damage', async () => {
    const { id, memory_mib } = await databases.make()
    await inside.write(id, 'redis')
    const free = 2048 - 256 - Number(memory_mib) // of a medium machine, without what its engine keeps
    const large = await databases.make({ memory_mib: free })
    const { id: execution, operation } = await databases.backUp(id)
    await operation.success()
    expect(await databases.execution(execution)).toMatchObject({
      status: 'succeeded',
      verified: { by: 'reading', rows },
    })
    const part = await BackupPart.findOne({ execution_id: execution, tenant_id: tenant.id }).lean()
    if (part) await spoil(part.blob)
    await (await databases.verify(execution)).operation.end()
    expect(await databases.execution(execution)).toMatchObject({
      status: 'damaged',
      reason: expect.stringMatching(/^The backup is damaged: part 1 of 1/),
    })
    for (const one of [large.id, id]) await (await databases.delete(one)).operation.success()
  })
})

describeEngines('the archive of a database', () => {
  testDrawn('is paused, which is told, while the tenant’s limit is reached, and goes on', async () => {
    await eventsOf(tenant.owner, server.id).make({ url: 'https://events.example' })
    const moments = momentsOf(tenant, databases, inside)
    const id = await moments.make()
    await limit(0)
    await inside.write(id, 'postgresql')
    const moment = await moments.now(id)
    const paused = await eventually(async () => {
      const { point_in_time } = await databases.get(id)
      return point_in_time?.status === 'paused' && point_in_time
    })
    expect(paused.reason).toMatch(/max_backup_gib is 0/)
    await eventually(async () =>
      (await EventDelivery.find({ tenant_id: tenant.id, kind: 'archive.paused' }).lean()).some(
        ({ message }) => message.includes('is not archived: The tenant’s limit'),
      ),
    )
    await limit(500)
    await moments.reaches(id, moment)
    await moments.archiving(id)
    await (await databases.delete(id)).operation.success()
  })
})
