/**
 * Imported by a test file that looks at the whole stack (all its processes, records or containers), so that no other file runs
 * beside it: see jest.config.js.
 */
export const isExclusive = true
