import { expect, test } from '@jest/globals'
import mongoose, { Schema } from 'mongoose'
import '../../models/index.ts'
import { sealedFields } from '../../models/sealed-fields.ts'

// A key rotation reseals the declared fields: values in other fields would be lost with their key.

/** The paths of a schema that end in `_sealed`, at any depth; those in arrays are marked by `[]`. */
function sealedPaths(schema: Schema): string[] {
  return Object.entries(schema.paths).flatMap(([path, type]) => {
    const inside = (type as { schema?: Schema }).schema
    const name = type.instance === 'Array' ? `${path}[]` : path
    if (inside) return sealedPaths(inside).map((inner) => `${name}.${inner}`)
    return path.endsWith('_sealed') ? [name] : []
  })
}

test('every field with a sealed name is declared, and every declared field exists', () => {
  const named = Object.values(mongoose.models).flatMap(({ schema, collection }) =>
    sealedPaths(schema).map((path) => `${collection.collectionName}.${path}`),
  )
  const declared = sealedFields().map(({ collection, path }) => `${collection.collectionName}.${path}`)
  expect(named.length).toBeGreaterThan(4)
  expect(declared.toSorted()).toEqual(named.toSorted())
})

test('the search for sealed fields finds nested ones too', () => {
  const part = new Schema({ a_sealed: String, other: String })
  const schema = new Schema({
    b_sealed: String,
    c: { d_sealed: String },
    e: part,
    f: [part],
    g_sealed: [String],
  })
  expect(sealedPaths(schema)).toEqual(['b_sealed', 'c.d_sealed', 'e.a_sealed', 'f[].a_sealed', 'g_sealed[]'])
})
