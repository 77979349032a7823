import { createConnection } from 'node:net'
import { expect, test } from '@jest/globals'
import { makeScratchEngines } from '../../../drivers/swarm/scratch-engines.ts'
import type { DialMachine } from '../../../drivers/swarms.ts'
import { makeMachineVolumes } from '../../../drivers/swarm/volumes.ts'
import { newId } from '../../../lib/ids.ts'
import { docker, dockerHost } from '../../support/containers.ts'

const { protocol, pathname, hostname, port } = new URL(dockerHost)
/** This machine's engine in the place of a machine's. */
const dial: DialMachine = async () =>
  protocol === 'unix:' ? createConnection(pathname) : createConnection(Number(port), hostname)

const [label, machine] = ['keelson.test-owner', 'one']

test('a volume that goes takes the engine with it that was left filling it; the others stay', async () => {
  const scratch = makeScratchEngines(dial)
  const owner = newId()
  const [kept, gone] = [`keelson-${newId()}`, `keelson-${newId()}`]
  await docker.createVolume({ Name: kept, Labels: { [label]: owner } })
  const size = { cpu_cores: 0.1, memory_mib: 32, data_path: '/data' }
  const command = ['sleep', '600']
  const volume = { name: gone, labels: { [label]: owner } }
  await scratch.start(machine, { id: owner, image: 'busybox', env: {}, command, ...size, volume })
  try {
    await makeMachineVolumes(dial).keep(machine, { name: label, value: owner }, [kept], 5)
    const filters = { label: [`${label}=${owner}`] }
    expect((await docker.listVolumes({ filters })).Volumes.map(({ Name }) => Name)).toEqual([kept])
    const left = await docker.listContainers({ all: true, filters: { label: [`keelson.scratch=${owner}`] } })
    expect(left).toEqual([])
  } finally {
    await scratch.remove(machine, owner)
    for (const name of [kept, gone])
      await docker
        .getVolume(name)
        .remove()
        .catch(() => {})
  }
})
