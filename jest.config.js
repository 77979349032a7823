/** Tests run the .ts files as Node 24 does: no transform, ES modules. One at a time: they share one real stack. */
export default {
  testEnvironment: 'node',
  extensionsToTreatAsEsm: ['.ts'],
  transform: {},
  testMatch: ['<rootDir>/test/**/*.test.ts'],
  modulePathIgnorePatterns: ['<rootDir>/.state'],
  maxWorkers: 1,
  testTimeout: 120_000,
}
