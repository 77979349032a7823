import { expect, test } from '@jest/globals'
import mongoose from 'mongoose'
import '../../models/index.ts'
import { allResources } from '../../models/resources.ts'
import { states } from '../../models/states.ts'
import * as workflows from '../../workflows/index.ts'
import { workflowType } from '../../lib/operation-workflows.ts'

const table = states({
  stopped: { start: 'starting', delete: 'deleting' },
  running: { stop: 'stopping', delete: 'deleting' },
})

test('a state table answers from where a verb leads where', () => {
  expect(table.from('delete')).toEqual(['stopped', 'running'])
  expect(table.during('stop')).toBe('stopping')
  expect(table.all).toEqual(['stopped', 'running', 'starting', 'deleting', 'stopping'])
})

// Each directive is an assertion: the type check fails if the line below it compiles.
test('a verb that no table has does not compile, and throws', () => {
  // @ts-expect-error: from() takes verbs of the table only
  expect(table.from('strat')).toEqual([])
  // @ts-expect-error: during() takes verbs of the table only
  expect(() => table.during('strat')).toThrow('no such verb: strat')
  // @ts-expect-error: `final` takes verbs of the table only
  states({ running: { stop: 'stopping' } }, { final: ['strat'] })
})

test('every verb of every resource has a workflow', () => {
  const missing = allResources().flatMap(({ kind, states: { all, verbs } }) => {
    const created = all.includes('creating') ? ['create', ...verbs] : verbs
    return created
      .map((verb) => workflowType({ resource_kind: kind, verb: verb }))
      .filter((name) => !(name in workflows))
  })
  expect(missing).toEqual([])
})

test('every model refuses fields that are not in its schema', () => {
  const all = Object.values(mongoose.models)
  const lax = all.filter(
    ({ schema }) => schema.get('strict') !== 'throw' || schema.get('strictQuery') !== 'throw',
  )
  expect(lax.map(({ modelName }) => modelName)).toEqual([])
})
