import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, expect, test } from '@jest/globals'
import { makeDockerEngine } from '../../../drivers/docker/engine.ts'
import { diskBelow } from '../../../drivers/linux/block-devices.ts'
import { readSettings } from '../../../config.ts'
import { makeHostPorts } from '../../../drivers/system/host-ports.ts'
import { newId } from '../../../lib/ids.ts'
import { image } from '../../support/base-images.ts'
import { confinementOf } from '../../support/confinement.ts'
import {
  docker,
  onEngine,
  removeTestContainers,
  shell,
  testHost,
  testPorts,
} from '../../support/containers.ts'
import { execInside } from '../../support/inside.ts'

// What a container takes from its host beside memory and CPU, tried from inside.

const disk = await diskBelow('/var/tmp')
const engine = makeDockerEngine({
  hostId: testHost,
  dockerHost: readSettings('host').KEELSON_DOCKER_HOST,
  ports: makeHostPorts({ address: '127.0.0.1', range: testPorts }),
  mostOpenFiles: 512,
  io: disk === null ? null : { disk, bytes: 16 * 1024 ** 2, operations: 500 },
})
afterAll(removeTestContainers)

// linux/capability.h: what Docker gives by default, and what the platform takes from that.
const engineDefaults = new Set([0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31])
const dropped = new Set([13, 27, 29, 31]) // NET_RAW, MKNOD, AUDIT_WRITE, SETFCAP

const output = async (id: string, script: string): Promise<string> => {
  const [container] = await onEngine(id)
  return (await execInside(docker.getContainer(container?.Id ?? ''), ['sh', '-c', script])).output.trim()
}

test('an image’s own health check does not run', async () => {
  await image('keelson/test-checked', '1', [], ['HEALTHCHECK --interval=1ms --timeout=1s CMD touch /checked'])
  const spec = shell('sleep 600', { image: 'keelson/test-checked:1' })
  await engine.run(spec, {}, newId())
  const [container] = await onEngine(spec.id)
  const { State, Config } = await docker.getContainer(container?.Id ?? '').inspect()
  expect(Config.Healthcheck).toMatchObject({ Test: ['NONE'] })
  expect(State.Health).toBeUndefined()
  expect(await output(spec.id, 'ls /checked 2>/dev/null; echo end')).toBe('end')
})

test('a container opens so many files, starts so many processes and writes no core', async () => {
  const spec = shell('sleep 600')
  await engine.run(spec, {}, newId())
  expect(await output(spec.id, 'ulimit -n; ulimit -Hn; ulimit -Hc')).toMatch(/^512\s+512\s+0$/)
  // Most of a fork bomb does not start. Each process of the shell's is a fork.
  const bomb =
    'i=0; while [ $i -lt 1500 ]; do sleep 60 & i=$((i + 1)); done 2>/dev/null; ls -d /proc/[0-9]* | wc -l'
  const [container] = await onEngine(spec.id)
  const { HostConfig } = await docker.getContainer(container?.Id ?? '').inspect()
  expect(HostConfig.PidsLimit).toBe(1024)
  expect(Number((await output(spec.id, bomb)).split(/\s+/).at(-1) || 0)).toBeLessThanOrEqual(1024)
})

test('root in a container may open no raw socket, makes no device and gains no capability', async () => {
  const spec = shell('sleep 600')
  const { pid } = await engine.run(spec, {}, newId())
  const { capabilities, most_capabilities, no_new_privileges, filtered } = await confinementOf(pid)
  expect(capabilities).toEqual([...engineDefaults].filter((one) => !dropped.has(one)))
  expect(most_capabilities).toEqual(capabilities)
  expect({ no_new_privileges, filtered }).toEqual({ no_new_privileges: true, filtered: true })
  expect(await output(spec.id, 'mknod /tmp/null c 1 3 2>/dev/null || echo none')).toBe('none')
})

test('a container has a share of the engine’s disk', async () => {
  const spec = shell('sleep 600')
  const { pid } = await engine.run(spec, {}, newId())
  expect(disk).not.toBeNull()
  const groups = await readFile(`/proc/${pid}/cgroup`, 'utf8')
  const blkio = /^\d+:blkio:(.*)$/m.exec(groups)?.[1]
  const file = blkio
    ? join('/sys/fs/cgroup/blkio', blkio, 'blkio.throttle.write_bps_device')
    : join('/sys/fs/cgroup', /^0::(.*)$/m.exec(groups)?.[1] ?? '', 'io.max')
  expect(await readFile(file, 'utf8')).toContain(String(16 * 1024 ** 2))
})
