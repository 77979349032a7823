import { afterEach, beforeEach, expect, test } from '@jest/globals'
import { banner } from '../../script/lib/banner.ts'
import { roleEnv } from '../../script/lib/roles.ts'
import { readLayout } from '../../script/lib/settings.ts'
import type { ServerFacts } from '../../script/lib/supervisor.ts'

// What script/server says and sets about the machines of deploy servers.

const names = ['KEELSON_MACHINE_KINDS', 'KEELSON_HOST_CONTAINER_MACHINES']
let before: (string | undefined)[]

const set = (name: string, value: string | undefined): void => {
  if (value === undefined) delete process.env[name]
  else process.env[name] = value
}
beforeEach(() => {
  before = names.map((name) => process.env[name])
  for (const name of names) set(name, undefined)
})
afterEach(() => names.forEach((name, index) => set(name, before[index])))

const facts: ServerFacts = {
  pid: 1,
  state: '.state',
  api_url: 'http://localhost:1',
  docs_url: 'http://localhost:1/docs',
  temporal_address: 'localhost:2',
  temporal_namespace: 'default',
  temporal_ui_url: 'http://localhost:3',
  docker_host: 'unix:///docker.sock',
  control_socket: 'control.sock',
  hosts: 1,
  tenant: 'first',
  email: 'owner@example.com',
}
const layout = readLayout()
const words = () => banner(layout, facts, null, 1)
const connections = { mongodbUrl: 'm', temporalAddress: 't', dockerHost: 'd', bridge: null }
const hostEnv = () => roleEnv(layout, 'host', connections)

test('the banner says that deploy servers get container machines, and for whom those are not', () => {
  expect(words()).toContain(
    'Deploy servers get container machines, which are not for tenants who distrust each other',
  )
  expect(hostEnv()).toMatchObject({ KEELSON_HOST_CONTAINER_MACHINES: 'true' })
})

test('the banner says nothing of them where the operator prefers VMs', () => {
  process.env['KEELSON_MACHINE_KINDS'] = 'vm'
  expect(words()).not.toContain('container machines')
})
