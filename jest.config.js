import { globSync, readFileSync } from 'node:fs'
import { isDrawn } from './test/support/sampled.ts'

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
// A run of all files has a third of those that kill processes or lose hosts of a single area, and half of those of an
// engine that the tests of its resources use too, drawn by its seed; a run of areas and the long form have all.
const kills = /(kills|lost-hosts|lost-machines|image-copies)\.test\.ts$/
const engines = /^test\/drivers\/(docker|haproxy|linux|qcow2|qemu)\//
const shareOf = (file) => (kills.test(file) ? 1 / 3 : engines.test(file) ? 1 / 2 : 1)
const isLeftOut = (file) => process.env.KEELSON_TEST_DRAWS && !isDrawn(file, shareOf(file))
const files = globSync('test/**/*.test.ts', { cwd: import.meta.dirname }).filter((file) => !isLeftOut(file))
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
