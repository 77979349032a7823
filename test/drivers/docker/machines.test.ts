import { execFileSync, spawn } from 'node:child_process'
import { randomInt } from 'node:crypto'
import { readFileSync, statSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import type Docker from 'dockerode'
import type { ContainerSpec } from '../../../drivers/containers.ts'
import { engineOf } from '../../../drivers/swarm/dial.ts'
import { makeSwarmMembership } from '../../../drivers/swarm/membership.ts'
import { newId } from '../../../lib/ids.ts'
import { dialMachines } from '../../../worker/host/machine-engines.ts'
import {
  containerSpec,
  docker,
  engine as engineWithout,
  machineEngine as engine,
  removeTestContainers,
} from '../../support/containers.ts'
import { eventually } from '../../support/eventually.ts'

// Machines of deploy servers as containers: an engine runs in them, within their limits, and what they must not reach
// stays out of reach. Root in a machine may mount /proc anew: docs/deploy-servers.md says what is not promised.

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

const resize = (memory_mib: number): Promise<void> =>
  engine.resize(id, { cpu_cores: 1, memory_mib, disk_gib: null, restart_policy: 'always' })
const forApplications = async (): Promise<number> => {
  const group = '/sys/fs/cgroup'
  const limits = await inMachine(`cat ${group}/apps/memory.max ${group}/memory/apps/memory.limit_in_bytes`)
  return Number(/^\d+$/m.exec(limits)?.[0]) / 1024 ** 2
}

const runInner = async (command: string): Promise<number> => {
  const container = await inner.createContainer({ Image: 'busybox:latest', Cmd: ['sh', '-c', command] })
  await container.start()
  const { StatusCode } = (await container.wait()) as { StatusCode: number }
  await container.remove()
  return StatusCode
}

/** A command that prints a control group whose name has this, if there is one. */
const find = (name: string, mountedAt = '/sys/fs/cgroup'): string =>
  `find ${mountedAt} -type d -name '*${name}*' | head -n 1`

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

  test('gives a container the port of one that was starting when the machine was killed', async () => {
    const port = 20_500
    const binding = { '80/tcp': [{ HostPort: String(port) }] }
    const made = await inner.createContainer({
      Image: 'busybox:latest',
      Cmd: ['sleep', '600'],
      ExposedPorts: { '80/tcp': {} },
      HostConfig: { PortBindings: binding },
    })
    await inMachine('pkill -STOP -x containerd') // so that it is starting until the kill
    const starting = made.start().catch(() => undefined)
    const isMapped = `iptables -t nat -S DOCKER | grep -c -e '--dport ${port} '`
    await eventually(async () => (await inMachine(isMapped)) === '1')
    const machineItself = docker.getContainer(`keelson-${id}`)
    await machineItself.kill()
    await starting
    await machineItself.start()
    await makeSwarmMembership(dial).awaitEngine(id, 60_000)
    await made.start()
    expect((await made.inspect()).State.Running).toBe(true)
    await made.remove({ force: true })
  })

  test('keeps its containers within its own memory, and its engine alive', async () => {
    expect(await runInner('tail /dev/zero')).toBe(137)
    expect(await runInner('exit 0')).toBe(0)
  })

  test.each([
    [1024, 896],
    [4096, 3840],
    [384, 336],
  ])('of %i MiB gives its applications %i MiB, also if it runs when its size changes', async (size, part) => {
    await resize(size)
    expect(await forApplications()).toBe(part)
  })

  test('keeps its former size if its applications cannot have their part of the new one', async () => {
    const program = '/usr/local/bin/machine-limit'
    await inMachine(`mv ${program} /tmp; printf '#!/bin/sh\nexit 1' >${program}; chmod 755 ${program}`)
    await expect(resize(256)).rejects.toMatchObject({ code: 'engine_refused' })
    await inMachine(`mv /tmp/machine-limit ${program}`)
    expect((await docker.getContainer(`keelson-${id}`).inspect()).HostConfig.Memory).toBe(384 * 1024 ** 2)
    expect(await forApplications()).toBe(336)
  })

  // Bits of include/uapi/linux/capability.h.
  const rights = {
    CHOWN: 0,
    DAC_OVERRIDE: 1,
    FOWNER: 3,
    FSETID: 4,
    KILL: 5,
    SETGID: 6,
    SETUID: 7,
    SETPCAP: 8,
    NET_BIND_SERVICE: 10,
    NET_ADMIN: 12,
    NET_RAW: 13,
    SYS_CHROOT: 18,
    SYS_PTRACE: 19,
    SYS_ADMIN: 21,
    MKNOD: 27,
    AUDIT_WRITE: 29,
    SETFCAP: 31,
  }
  test('has the rights that docs/deploy-servers.md names and no other', async () => {
    const all = Number(`0x${await inMachine("sed -n 's/^CapBnd:\\t//p' /proc/self/status")}`)
    expect(all).toBe(Object.values(rights).reduce((sum, bit) => sum + 2 ** bit, 0))
    const page = readFileSync('docs/deploy-servers.md', 'utf8')
    for (const right of Object.keys(rights)) expect(page).toContain(`\`${right}\``)
  })

  test.each(['NET_ADMIN', 'SYS_ADMIN'])('has no engine without %s', async (right) => {
    const own = await mkdtemp(join(tmpdir(), 'machine-'))
    const { Config, HostConfig } = await docker.getContainer(`keelson-${id}`).inspect()
    const lesser = await docker.createContainer({
      Image: Config.Image,
      Env: Config.Env,
      HostConfig: {
        ...HostConfig,
        Mounts: [{ Type: 'bind', Source: own, Target: '/var/lib/machine' }],
        CapAdd: Object.keys(rights).filter((one) => one !== right),
        RestartPolicy: { Name: 'no' },
      },
    })
    try {
      await lesser.start()
      const fails = async (): Promise<boolean> =>
        !(await lesser.inspect()).State.Running ||
        String(await lesser.logs({ stdout: true, stderr: true })).includes('the engine ended')
      expect(await eventually(fails)).toBe(true)
    } finally {
      await lesser.remove({ force: true, v: true })
      await rm(own, { recursive: true })
    }
  })

  test('runs commands in a container that does not run as root', async () => {
    const User = '65534'
    const one = await inner.createContainer({ Image: 'busybox', User, Cmd: ['sleep', '600'] })
    try {
      await one.start()
      const command = await one.exec({ Cmd: ['id', '-u'], AttachStdout: true, AttachStderr: true, Tty: true })
      expect((await text(await command.start({ Tty: true }))).trim()).toBe(User)
    } finally {
      await one.remove({ force: true })
    }
  })

  // Numbers of system calls, by asm/unistd.h of the processor.
  const calls = { x64: { load: 175, reboot: 169 }, arm64: { load: 105, reboot: 142 } }[process.arch as 'x64']
  test.each([
    ['load a module', `${calls.load}, my $image = "", 0, my $options = ""`],
    // Whether Ctrl-Alt-Del reboots: with the right to reboot it is refused as invalid.
    ['reboot its host', `${calls.reboot}, 0xfee1dead, 672274793, 0, 0`],
  ])('has no right to %s', async (_, call) => {
    const said = await inMachine(`perl -e 'syscall(${call}) == 0 ? print "done" : print "$!"'`)
    expect(said).toMatch(/^(Operation not permitted|Function not implemented)$/) // the second by a kernel without modules
  })

  test('sees no processes but its own', async () => {
    const own = spawn('sleep', [`86400.${randomInt(1e9)}`])
    const sees = 'cat /proc/[0-9]*/cmdline | tr "\\0" " "'
    try {
      const program = own.spawnargs.join(' ')
      expect(execFileSync('sh', ['-c', `(${sees}) 2>&1`], { encoding: 'utf8' })).toContain(program)
      const seen = await inMachine(sees)
      expect(seen).toContain('dockerd')
      expect(seen).not.toContain(program)
    } finally {
      own.kill()
    }
  })

  test('sees no control groups but its own, also in a hierarchy that it mounts', async () => {
    const outer = (await docker.getContainer(`keelson-${id}`).inspect()).Id
    const container = await inner.createContainer({ Image: 'busybox:latest', Cmd: ['sleep', '600'] })
    await container.start()
    expect(execFileSync('sh', ['-c', find(outer)], { encoding: 'utf8' })).toContain(outer)
    expect(await inMachine(find(container.id))).toContain(container.id)
    expect(await inMachine(find(outer))).toBe('')
    const mount = '{ mount -t cgroup -o memory g /tmp/g || mount -t cgroup2 g /tmp/g; } 2>/dev/null'
    await inMachine(`mkdir -p /tmp/g; ${mount}`)
    expect(await inMachine(find(container.id, '/tmp/g'))).toContain(container.id)
    expect(await inMachine(find(outer, '/tmp/g'))).toBe('')
    await inMachine('umount /tmp/g')
    await container.remove({ force: true })
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
    [
      'name such a program in a hierarchy that it mounts',
      'mkdir -p /tmp/own && mount -t cgroup -o memory own /tmp/own && echo /x >/tmp/own/release_agent',
    ],
    [
      'name such a program in a hierarchy that it makes',
      'mkdir -p /tmp/new && mount -t cgroup -o none,name=new new /tmp/new && echo /x >/tmp/new/release_agent',
    ],
    ['read its host’s memory', 'mknod /tmp/mem c 1 1 && dd if=/tmp/mem of=/dev/null bs=512 count=1'],
    ['use its host’s ports', 'mknod /tmp/port c 1 4 && dd if=/tmp/port of=/dev/null bs=1 count=1'],
    ['write to the kernel’s settings', 'echo /x >/proc/sys/kernel/core_pattern'],
    ['send keys to the kernel', 'echo h >/proc/sysrq-trigger'],
  ])('cannot %s', async (_, command) => {
    expect(await inMachine(`(${command}) && echo done || echo refused`)).toMatch(/refused$/)
  })
})
