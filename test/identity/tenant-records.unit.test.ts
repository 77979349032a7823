import { expect, test } from '@jest/globals'
import mongoose from 'mongoose'
import '../../models/index.ts'
import { tenantRecords } from '../../models/identity/tenant-records.ts'
import { allResources } from '../../models/resources.ts'
import { tenantField } from '../../models/tenant-scope.ts'

// A tenant's deletion finds what is the tenant's by its tenant_id: what has none would stay for ever.

/** Belong to the platform; counters and turns name their tenant in the id, and are removed by it. */
const platforms = [
  'Attempt',
  'Counter',
  'DataKey',
  'IdentityTurn',
  'Mail',
  'MailNotification',
  'MailSuppression',
  'NetworkCounter',
  'SigningKey',
  'UnwantedBlob',
]
/** Kept beyond a tenant: who did what; and what names one only to keep its operations there. */
const kept = ['AuditEvent', 'EncryptionKey', 'Host', 'Tenant']

test('every model has a tenant_id, or is known to be the platform’s', () => {
  const without = Object.values(mongoose.models).filter(({ schema }) => !tenantField(schema))
  expect(without.map(({ modelName }) => modelName).toSorted()).toEqual(platforms)
})

test('all that has one is removed, but for what is kept', () => {
  const removed = tenantRecords('a tenant').map(({ collection }) => collection.collectionName)
  const expected = Object.values(mongoose.models)
    .filter(({ modelName }) => !platforms.includes(modelName) && !kept.includes(modelName))
    .map(({ collection }) => collection.collectionName)
  expect(removed.toSorted()).toEqual(expected.toSorted())
})

test('every resource of a tenant can be deleted', () => {
  for (const { kind, states } of allResources().filter(({ of_platform }) => !of_platform)) {
    expect([kind, states.from('delete').length > 0]).toEqual([kind, true])
  }
})
