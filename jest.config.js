import { readFileSync } from 'node:fs'
import { filesOfRun } from './test/support/drawn-files.ts'

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

// What a file imports says that it needs the stack for itself: it kills or stops roles, opens and closes hosts, listens
// on the one port of the mail topic, or says so by importing `exclusive`.
const alone = /support\/(exclusive|platform|hosts|describe-hosts|topic)\.ts'/

const ends = (suffix, files) =>
  files.map((file) => `<rootDir>/${file}`).filter((file) => file.endsWith(suffix))
const files = filesOfRun().map((file) => `test/${file}`)
const stackFiles = files.filter((file) => !file.endsWith('.unit.test.ts'))
const isExclusive = (file) => alone.test(readFileSync(new URL(file, import.meta.url), 'utf8'))

export default {
  maxWorkers: 1,
  testTimeout: 600_000,
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
