import { readFile } from 'node:fs/promises'
import { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { afterAll, afterEach, beforeAll, expect } from '@jest/globals'
import type Docker from 'dockerode'
import { engineOf } from '../../../drivers/swarm/dial.ts'
import { serviceLabel } from '../../../drivers/swarm/services.ts'
import { makeTaskSamples } from '../../../drivers/swarm/task-samples.ts'
import { newId } from '../../../lib/ids.ts'
import { dialMachines } from '../../../worker/host/machine-engines.ts'
import { tarOf } from '../../support/archives.ts'
import { type DiskHost, diskHost, removeDisks, removeHosts } from '../../support/disk-hosts.ts'
import { eventually } from '../../support/eventually.ts'
import { testLong } from '../../support/long-tests.ts'
import { machines, machineSpec, settings, start, withMachines } from '../../support/machine-hosts.ts'

let here: DiskHost

withMachines('machines of deploy servers', () => {
  beforeAll(async () => {
    here = await diskHost(settings.plugs)
  })
  afterEach(async () => {
    for (const { id } of await machines.list()) await machines.remove(id, { discard: true })
    await removeDisks()
  })
  afterAll(removeHosts)

  testLong(
    'a VM runs an engine that keeps everything on its disk, also when the disk has grown',
    async () => {
      const { image_digest, least_disk_gib } = await machines.prepare('vm', 'machine')
      const disk_id = newId()
      await here.disks.create({ id: disk_id, size_gib: 1 })
      const vm = newId()
      const spec = machineSpec({
        id: vm,
        kind: 'vm',
        image: 'machine',
        image_digest,
        command: [],
        memory_mib: 640,
        root_disk_gib: least_disk_gib,
        user_data: 'MACHINE_ENGINE_ARGS=--insecure-registry 10.77.0.11:5000\n',
        disks: [
          {
            disk_id,
            mount_path: '/var/lib/machine',
            read_only: false,
            ...(await here.disks.plug(disk_id, vm)),
          },
        ],
      })
      await start(spec)
      const docker = engineOf<Docker>(dialMachines(machines), spec.id)
      const info = () => eventually(() => docker.info().catch(() => null), { withinMs: 600_000 })
      expect(await info()).toMatchObject({
        Driver: 'overlay2',
        DockerRootDir: '/var/lib/machine/docker',
        CgroupDriver: 'systemd',
        RegistryConfig: { IndexConfigs: { '10.77.0.11:5000': { Secure: false } } },
      })
      await docker.createVolume({ Name: 'kept' })
      const image = await tarOf([{ name: 'busybox', mode: 0o755, content: await readFile('/bin/busybox') }])
      await text(await docker.importImage(Readable.from([image]), { repo: 'busybox' }))
      const container = await docker.createContainer({
        Image: 'busybox',
        Cmd: ['/busybox', 'sleep', '3600'],
        Labels: { [serviceLabel]: 'one' },
      })
      await container.start()
      const samples = makeTaskSamples((id, command) => machines.pipe(id, command), 120)
      expect(await samples(spec.id)).toMatchObject({
        ended: [],
        running: [{ service_id: 'one', memory_bytes: expect.any(Number), cpu_ms: expect.any(Number) }],
      })
      const sizeOfDisk = async () => {
        const pipe = await machines.pipe(spec.id, [
          'sh',
          '-c',
          'df -m --output=size /var/lib/machine | tail -n 1',
        ])
        return Number(await text(pipe))
      }
      expect(await sizeOfDisk()).toBeLessThan(1024)

      await here.disks.resize(disk_id, 2)
      await machines.reboot(spec, {}, newId(), 120)
      await info()
      const { Volumes } = await docker.listVolumes()
      expect(Volumes).toMatchObject([{ Name: 'kept' }])
      expect(await sizeOfDisk()).toBeGreaterThan(1500)
    },
    1_800_000,
  )
})
