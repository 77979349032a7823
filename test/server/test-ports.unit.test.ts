import { expect, test } from '@jest/globals'
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
