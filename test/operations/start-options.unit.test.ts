import { expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { runStartOptions, startOptions } from '../../lib/operation-workflows.ts'

// How workflows are started. Children and activities have the priority of their parents.

const tenant_id = newId()
const starts = {
  'an operation': startOptions({
    _id: newId(),
    tenant_id,
    resource_kind: 'container',
    resource_id: newId(),
    resource_name: 'a tenant’s name',
    verb: 'create',
    workflow_id: `container-create-${newId()}`,
  }),
  'a run of an AI workflow': runStartOptions({ _id: newId(), tenant_id, workflow_id: newId(), version: 1 }),
}

test.each(Object.entries(starts))(
  'the workflow of %s takes turns with those of other tenants',
  (_, start) => {
    expect(start.priority).toEqual({ fairnessKey: tenant_id })
  },
)

test.each(Object.entries(starts))('the search attributes of %s are ids and its kind of work', (_, start) => {
  const shown = start.typedSearchAttributes.getAll().map(({ value }) => String(value))
  expect(shown).toContain(tenant_id)
  for (const value of shown) expect(value).toMatch(/^([0-9a-f-]{36}|container\.create|ai_run)$/)
})
