import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from '@jest/globals'
import mongoose from 'mongoose'
import '../../models/index.ts'
import { tenantRecords } from '../../models/identity/tenant-records.ts'
import { allResources } from '../../models/resources.ts'
import { tenantField } from '../../models/tenant-scope.ts'

// Deleting a tenant removes records by tenant_id: records without one would stay for ever.

/** Models of the platform. Counters and turns have the tenant in their ids, by which they are removed. */
const platforms = [
  'Attempt',
  'BlobShare',
  'Counter',
  'DataKey',
  'IdentityTurn',
  'Mail',
  'MailNotification',
  'MailSuppression',
  'NetworkCounter',
  'SigningKey',
  'SpentToken',
  'UnwantedBlob',
]
/** Kept after the tenant is deleted: the audit trail, and records that only list its operations. */
const kept = ['AuditEvent', 'EncryptionKey', 'Host', 'Tenant']

test('models/index.ts imports every model: its indexes are made, and it goes with its tenant', () => {
  const folder = join(import.meta.dirname, '../../models')
  const files = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((file) =>
    file.endsWith('.ts'),
  )
  const defined = files.flatMap((file) =>
    [...readFileSync(join(folder, file), 'utf8').matchAll(/mongoose\s*\.model(?:<[^(]*>)?\(\s*'(\w+)'/g)].map(
      ([, name]) => name,
    ),
  )
  expect(defined.length).toBeGreaterThan(70)
  expect(defined.filter((name) => !mongoose.models[name ?? ''])).toEqual([])
})

test('every model has a tenant_id, or belongs to the platform', () => {
  const without = Object.values(mongoose.models).filter(({ schema }) => !tenantField(schema))
  expect(without.map(({ modelName }) => modelName).toSorted()).toEqual(platforms)
})

test('deleting a tenant removes all models with a tenant_id, except those kept', () => {
  const removed = tenantRecords('a tenant').map(({ collection }) => collection.collectionName)
  const expected = Object.values(mongoose.models)
    .filter(({ modelName }) => !platforms.includes(modelName) && !kept.includes(modelName))
    .map(({ collection }) => collection.collectionName)
  expect(removed.toSorted()).toEqual(expected.toSorted())
})

test('every resource of a tenant can be deleted, or goes with its parent', () => {
  const without = allResources().filter(
    ({ of_platform, states }) => !of_platform && states.from('delete').length === 0,
  )
  expect(without.map(({ kind }) => kind).toSorted()).toEqual([
    'ai_eval',
    'artifact',
    'build',
    'deployment',
    'task_run',
  ])
})
