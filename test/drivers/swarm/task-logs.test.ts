import { createConnection } from 'node:net'
import { afterAll, expect, test } from '@jest/globals'
import { serviceLabel } from '../../../drivers/swarm/services.ts'
import { makeTaskLogs } from '../../../drivers/swarm/task-logs.ts'
import type { DialMachine } from '../../../drivers/swarms.ts'
import { newId } from '../../../lib/ids.ts'
import { docker, dockerHost, removeTestContainers, testTenant } from '../../support/containers.ts'

const { protocol, pathname, hostname, port } = new URL(dockerHost)
/** This machine's engine in the place of a machine's. */
const dial: DialMachine = async () =>
  protocol === 'unix:' ? createConnection(pathname) : createConnection(Number(port), hostname)

afterAll(() => removeTestContainers())

test('the last lines of a service’s tasks have a bound of bytes, and are without a gap', async () => {
  const service = newId()
  for (const task of [1, 2, 3]) {
    const container = await docker.createContainer({
      Image: 'busybox:latest',
      Cmd: ['sh', '-c', `for i in 1 2 3; do printf '${task}-%0997d\\n' $i; done`],
      Labels: { 'keelson.tenant': testTenant, [serviceLabel]: service },
      HostConfig: { LogConfig: { Type: 'json-file', Config: {} } },
    })
    await container.start()
    await container.wait()
  }
  const read = async (lines: number | undefined, bytes?: number): Promise<string[]> => {
    const found = await makeTaskLogs(dial, bytes)('one', service, lines === undefined ? {} : { lines })
    return (await Array.fromAsync(found)).map(({ line }) => `${line.slice(0, 2)}${line.at(-1)}`)
  }
  const all = ['1-1', '1-2', '1-3', '2-1', '2-2', '2-3', '3-1', '3-2', '3-3']
  expect(await read(undefined, 1)).toEqual(all)
  expect(await read(100)).toEqual(all)
  expect(await read(4)).toEqual(all.slice(-4))
  expect(await read(100, 5_500)).toEqual(all.slice(-5))
  expect(await read(0)).toEqual([])
})
