import { globSync, readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { expect, test } from '@jest/globals'
import { isExclusive } from '../support/exclusive-files.ts'
import * as stack from '../support/stack.ts'

test('each server that the tests start has a port of its own', () => {
  const { mailTopic, acmeServer, eventReceiver, platformS3, tenantS3, privateRegistry, fullDiskServer } =
    stack
  const { docsServers, toolServers, providerPorts, modelProviderPorts } = stack
  const one = [mailTopic, acmeServer, eventReceiver, platformS3, tenantS3, privateRegistry, fullDiskServer]
  const many = [docsServers, toolServers, providerPorts, modelProviderPorts]
  const ports = [...one, ...many].flatMap((server) => Object.values<unknown>(server))
  // A server of the platform has 13 more behind its own.
  const its = Array.from({ length: 13 }, (_, at) => fullDiskServer.port + 1 + at)
  const numbers = [...ports, ...its].filter((port) => typeof port === 'number')
  expect(numbers.length).toBeGreaterThan(16)
  expect(numbers.toSorted((a, b) => a - b)).toEqual([...new Set(numbers)].toSorted((a, b) => a - b))
})

test('no two files that may run side by side start a server of models or tools at the same port', () => {
  const cwd = resolve(import.meta.dirname, '..')
  const calm = globSync('**/*.test.ts', { cwd }).filter((file) => !isExclusive(file))
  const uses = calm.flatMap((file) => [
    ...new Set(readFileSync(resolve(cwd, file), 'utf8').match(/\b(modelProviderPorts|toolServers)\.\w+/g)),
  ])
  expect(uses.length).toBeGreaterThan(10)
  expect(uses.toSorted()).toEqual([...new Set(uses)].toSorted())
})
