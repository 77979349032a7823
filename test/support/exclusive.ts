/**
 * Imported by a test file that looks at the whole stack (all its processes, records or containers): no other file runs
 * beside it. See jest.config.js.
 */
export const isExclusive = true
