import { filesOfRun } from './test/support/drawn-files.ts'
import { isExclusive } from './test/support/exclusive-files.ts'

// Tests run the .ts files as Node 24 does: no transform, ES modules. script/test says how the projects share the machine.

const common = {
  testEnvironment: 'node',
  extensionsToTreatAsEsm: ['.ts'],
  transform: {},
  modulePathIgnorePatterns: ['<rootDir>/.state'],
  setupFilesAfterEnv: ['<rootDir>/test/support/launched.ts'],
}

const onStack = {
  ...common,
  globalSetup: '<rootDir>/test/support/setup.ts',
  globalTeardown: '<rootDir>/test/support/teardown.ts',
  setupFilesAfterEnv: [...common.setupFilesAfterEnv, '<rootDir>/test/support/each-file.ts'],
}

const ends = (suffix, files) =>
  files.filter((file) => file.endsWith(suffix)).map((file) => `<rootDir>/test/${file}`)
const files = filesOfRun()
const stackFiles = files.filter((file) => !file.endsWith('.unit.test.ts'))

export default {
  maxWorkers: 1,
  testTimeout: 1_200_000,
  testSequencer: '<rootDir>/test/support/order.ts',
  reporters: ['default', '<rootDir>/test/support/counts.ts'],
  projects: [
    { ...common, displayName: 'unit', testMatch: ends('.unit.test.ts', files) },
    {
      ...onStack,
      displayName: 'calm',
      testMatch: ends(
        '.test.ts',
        stackFiles.filter((file) => !isExclusive(file)),
      ),
    },
    { ...onStack, displayName: 'exclusive', testMatch: ends('.test.ts', stackFiles.filter(isExclusive)) },
  ],
}
