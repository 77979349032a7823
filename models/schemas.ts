/**
 * The options of every schema. An unknown field throws in writes and filters: mongoose would silently drop a typo.
 * No fields of mongoose's own are stored.
 */
export const schemaOptions = {
  strict: 'throw',
  strictQuery: 'throw',
  versionKey: false,
  id: false,
  minimize: false,
  // Load balancers have `listeners`. Documents are read as plain objects, so names of mongoose's own do not matter.
  suppressReservedKeysWarning: true,
} as const
