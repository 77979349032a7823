import { statSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import type Docker from 'dockerode'
import { readSettings } from '../../../config.ts'
import type { ContainerSpec } from '../../../drivers/containers.ts'
import { makeDockerEngine } from '../../../drivers/docker/engine.ts'
import { engineOf } from '../../../drivers/swarm/dial.ts'
import { makeSwarmMembership } from '../../../drivers/swarm/membership.ts'
import { makeHostPorts } from '../../../drivers/system/host-ports.ts'
import { newId } from '../../../lib/ids.ts'
import { dialMachines } from '../../../worker/host/machine-engines.ts'
import {
  containerSpec,
  docker,
  engine as engineWithout,
  removeTestContainers,
  testHost,
  testPorts,
} from '../../support/containers.ts'

// Machines of deploy servers as containers: an engine runs in them, within their limits, and what they must not reach
// stays out of reach. Root in a machine may mount /proc anew: docs/deploy-servers.md says what is not promised.

const engine = makeDockerEngine({
  hostId: testHost,
  dockerHost: readSettings('host').KEELSON_DOCKER_HOST,
  ports: makeHostPorts({ address: '127.0.0.1', range: testPorts }),
  machines: true,
})
const dial = dialMachines(engine)

let folder: string
/** Its data are in a folder of the host: an engine's layers cannot be on those of another. */
const machine = (): ContainerSpec =>
  containerSpec({
    image: 'keelson/machine:1',
    command: [],
    memory_mib: 384,
    cpu_cores: 1,
    machine: true,
    mounts: [{ host_path: folder, mount_path: '/var/lib/machine', read_only: false }],
  })

let id: string
let inner: Docker
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'machine-'))
  const spec = machine()
  id = spec.id
  await engine.run(spec, {}, newId())
  await makeSwarmMembership(dial).awaitEngine(id, 60_000)
  inner = engineOf<Docker>(dial, id)
  const loaded = await inner.loadImage(await docker.getImage('busybox:latest').get())
  await text(loaded)
})
afterAll(async () => {
  await removeTestContainers()
  await rm(folder, { recursive: true })
})

/** The output of a shell command in the machine. Its errors are part of it. */
const inMachine = async (command: string): Promise<string> =>
  (await text(await engine.pipe(id, ['sh', '-c', `{ ${command}; } 2>&1`]))).trim()

const runInner = async (command: string): Promise<number> => {
  const container = await inner.createContainer({ Image: 'busybox:latest', Cmd: ['sh', '-c', command] })
  await container.start()
  const { StatusCode } = (await container.wait()) as { StatusCode: number }
  await container.remove()
  return StatusCode
}

test('is refused on a host whose operator does not allow it', async () => {
  await expect(engineWithout.run(machine(), {}, newId())).rejects.toMatchObject({ code: 'engine_refused' })
})

describe('a machine', () => {
  test('runs containers of its own, with the rights that containers have', async () => {
    expect(await runInner('exit 7')).toBe(7)
  })

  test('has its engine back after that was killed', async () => {
    await inMachine('kill -9 $(cat /run/docker.pid)')
    await makeSwarmMembership(dial).awaitEngine(id, 60_000)
    expect(await runInner('exit 0')).toBe(0)
  })

  test('keeps its containers within its own memory, and its engine alive', async () => {
    expect(await runInner('tail /dev/zero')).toBe(137)
    expect(await runInner('exit 0')).toBe(0)
  })

  const forbidden = { SYS_MODULE: 16, SYS_RAWIO: 17, SYS_PTRACE: 19, SYS_BOOT: 22, SYS_TIME: 25, SYSLOG: 34 }
  test('has no right to load modules, to trace, to reboot, to set the clock, nor to raw I/O', async () => {
    const all = BigInt(`0x${await inMachine("sed -n 's/^CapBnd:\\t//p' /proc/self/status")}`)
    const there = Object.entries(forbidden).filter(([, bit]) => (all >> BigInt(bit)) & 1n)
    expect(there).toEqual([])
  })

  const { dev } = statSync('/')
  const disk = `b ${(dev >> 8) & 0xfff} ${(dev & 0xff) | ((dev >> 12) & 0xfff00)}`
  test.each([
    ['read its host’s disk', `mknod /tmp/disk ${disk} && dd if=/tmp/disk of=/dev/null bs=512 count=1`],
    ['allow itself devices', 'echo a >/sys/fs/cgroup/devices/devices.allow'],
    ['set the clock', 'date -s 2020-01-01'],
    [
      'name a program for its host to run when a group is empty',
      'echo /x >/sys/fs/cgroup/memory/release_agent',
    ],
    ['write to the kernel’s settings', 'echo /x >/proc/sys/kernel/core_pattern'],
    ['send keys to the kernel', 'echo h >/proc/sysrq-trigger'],
  ])('cannot %s', async (_, command) => {
    expect(await inMachine(`(${command}) && echo done || echo refused`)).toMatch(/refused$/)
  })
})
