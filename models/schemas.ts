/**
 * The options of every schema. A field that the schema does not have throws, in a write and in a filter alike: a typo is
 * never silently dropped. Nothing of mongoose's own is stored.
 */
export const schemaOptions = {
  strict: 'throw',
  strictQuery: 'throw',
  versionKey: false,
  id: false,
  minimize: false,
} as const
