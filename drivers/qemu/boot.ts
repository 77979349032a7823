import { randomUUID } from 'node:crypto'
import { readFile, rm, stat } from 'node:fs/promises'
import { availableParallelism, totalmem } from 'node:os'
import { join } from 'node:path'
import { HostNotEquipped } from '../errors.ts'
import type { MachineEngineDescription } from '../machines.ts'
import { run } from '../system/programs.ts'
import { nullIfMissing, publishText } from '../system/files.ts'
import type { makeKernels } from './kernels.ts'

/** Files and settings with which this host's machines boot. The kernel is that of new ones. */
export interface HostBoot {
  kernel: string
  initramfs: string
  /** Starts QEMU, gives it taps, and forwards ports: made of images/guest/helper. */
  helper: string
  kernelVersion: string
  kernelDigest: string
  accelerator: 'kvm' | 'tcg'
  qemuVersion: string
  tscKhz: number
}

export const qemu = 'qemu-system-x86_64'

/**
 * Finds what guests boot with, and keeps a copy of the kernel; images/guest/build makes the files in `guest`. Throws
 * HostNotEquipped.
 */
export async function findBoot(
  guest: string,
  folder: string,
  kernels: ReturnType<typeof makeKernels>,
): Promise<HostBoot> {
  const kernelVersion = (await readFile(join(guest, 'version'), 'utf8').catch(nullIfMissing))?.trim()
  if (!kernelVersion) throw new HostNotEquipped('the guest kernel (script/bootstrap)')
  const [, qemuVersion = ''] = /version ([\d.]+)/.exec(await run(qemu, ['--version'])) ?? []
  const { kernel, initramfs, digest } = await kernels.keep({
    kernel: join(guest, 'vmlinuz'),
    initramfs: join(guest, 'initramfs'),
  })
  const files = {
    kernel,
    initramfs,
    kernelDigest: digest,
    helper: join(guest, 'helper'),
    kernelVersion,
    qemuVersion,
  }
  return { ...files, ...(await probed(files, join(folder, '.probed.json'))) }
}

type Probed = Pick<HostBoot, 'accelerator' | 'tscKhz'>

/**
 * Boots a guest to test KVM: on some hosts `/dev/kvm` opens and guests then hang. Done once per host boot, kernel and
 * QEMU version.
 */
async function probed(files: Omit<HostBoot, keyof Probed>, cache: string): Promise<Probed> {
  const bootId = (await readFile('/proc/sys/kernel/random/boot_id', 'utf8')).trim()
  const of = [bootId, files.kernelVersion, files.qemuVersion].join(' ')
  const text = await readFile(cache, 'utf8').catch(nullIfMissing)
  const known = text ? (JSON.parse(text) as Probed & { of: string }) : null
  if (known?.of === of) return { accelerator: known.accelerator, tscKhz: known.tscKhz }
  const tscKhz = Number(await run(files.helper, ['tsc']))
  const accelerator = (await bootsWithKvm(files)) ? 'kvm' : 'tcg'
  await publishText(cache, JSON.stringify({ of, accelerator, tscKhz }))
  return { accelerator, tscKhz }
}

const probeSec = 10

async function bootsWithKvm({ kernel, initramfs }: Omit<HostBoot, keyof Probed>): Promise<boolean> {
  const there = await stat('/dev/kvm').catch(() => null)
  if (!there) return false
  const file = `/tmp/keelson-probe-${randomUUID()}`
  const machine = [
    '-M',
    'microvm,acpi=on',
    '-accel',
    'kvm',
    '-cpu',
    'host',
    '-m',
    '256',
    '-nodefaults',
    '-no-user-config',
  ]
  const boot = [
    '-kernel',
    kernel,
    '-initrd',
    initramfs,
    '-append',
    'console=ttyS0 quiet panic=-1 reboot=t keelson=probe',
  ]
  const args = [...machine, ...boot, '-display', 'none', '-no-reboot', '-serial', `file:${file}`]
  try {
    await run('timeout', ['-s', 'KILL', String(probeSec), qemu, ...args]).catch(() => {}) // its output has the result
    return ((await readFile(file, 'utf8').catch(nullIfMissing)) ?? '').includes('keelson-probe-ok')
  } finally {
    await rm(file, { force: true })
  }
}

const mebibyte = 1024 ** 2

export const describeQemu = (boot: HostBoot, diskGib: number): MachineEngineDescription => ({
  name: 'qemu',
  version: boot.qemuVersion,
  accelerator: boot.accelerator,
  kernel: boot.kernelVersion,
  cpu_cores: availableParallelism(),
  memory_mib: Math.floor(totalmem() / mebibyte),
  disk_gib: diskGib,
})
