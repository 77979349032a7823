// Tests run the .ts files as Node 24 does: no transform, ES modules. One file at a time: those that need the
// platform share one real stack, and some kill its parts. Two files at a time takes two stacks: script/test.

const common = {
  testEnvironment: 'node',
  extensionsToTreatAsEsm: ['.ts'],
  transform: {},
  modulePathIgnorePatterns: ['<rootDir>/.state'],
}

export default {
  maxWorkers: 1,
  testTimeout: 300_000,
  testSequencer: '<rootDir>/test/support/order.ts',
  reporters: ['default', '<rootDir>/test/support/counts.ts'],
  projects: [
    { ...common, displayName: 'unit', testMatch: ['<rootDir>/test/**/*.unit.test.ts'] },
    {
      ...common,
      displayName: 'stack',
      testMatch: ['<rootDir>/test/**/*.test.ts'],
      testPathIgnorePatterns: [String.raw`\.unit\.test\.ts$`],
      globalSetup: '<rootDir>/test/support/setup.ts',
      globalTeardown: '<rootDir>/test/support/teardown.ts',
      setupFilesAfterEnv: ['<rootDir>/test/support/each-file.ts'],
    },
  ],
}
