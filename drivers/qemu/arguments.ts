import type { MachineKind, MachineNic } from '../machines.ts'
import { firstHandle, type Handle } from '../system/confinement.ts'
import type { HostBoot } from './boot.ts'
import type { MachinePlace } from './places.ts'
import type { Launched } from './records.ts'

// QEMU's command line. Every device has a fixed id and bus address and always exists, used or not: devices are part of
// a suspended machine's memory. The command line contains no secrets.

export const nicPorts = 4

/**
 * What a microVM's kernel uses itself (Debian's 6.1: 46 MiB of 64 are reserved, and it does not start in 64). Added to
 * `memory_mib`, which is for the command, like a container's.
 */
export const kernelMib = 48

// Under TCG, QEMU by default uses a quarter of the guest's memory for translated code; 32 MiB are no slower for small
// guests. The programs of a VM's system are larger: beyond this size they would be translated again and again.
const translationMib = { microvm: 32, vm: 128 }

export const diskDevice = (diskId: string): string => `disk-${diskId}`
export const nicDevice = (port: number): string => `nic${port}`

export const backend = (port: number): string => `net${port}`

const tapOf = ({ namespace, device }: MachineNic): Handle => ({ tap: { namespace, device } })

export const nicProperties = (port: number, nic: MachineNic): Record<string, unknown> => ({
  driver: 'virtio-net-pci',
  id: nicDevice(port),
  netdev: backend(port),
  mac: nic.mac_address,
  bus: `port${port}`,
  romfile: '',
})

/** A disk served over a socket. If the server ends, QEMU and the machine wait for it. */
export const diskNode = (diskId: string, socket: string, readOnly: boolean): Record<string, unknown> => ({
  driver: 'nbd',
  'node-name': nodeName(diskId),
  server: { type: 'unix', path: socket },
  export: 'disk',
  'reconnect-delay': reconnectSec,
  'read-only': readOnly,
  discard: 'unmap',
  'detect-zeroes': 'unmap',
})

const reconnectSec = 3600

export const rootNode = 'root'
/** A node's name has at most 31 characters. */
export const nodeName = (diskId: string): string => `d${diskId.replaceAll('-', '').slice(-30)}`

/** A write that finds no room on the host stops the machine, see room.ts. The guest gets other errors. */
const onFailedWrites = { werror: 'enospc', rerror: 'report' }

export const diskProperties = (diskId: string, lun: number): Record<string, unknown> => ({
  driver: 'scsi-hd',
  id: diskDevice(diskId),
  drive: nodeName(diskId),
  bus: 'scsi.0',
  channel: 0,
  'scsi-id': 0,
  lun,
  serial: diskId,
  ...onFailedWrites,
})

interface Launch {
  id: string
  kind: MachineKind
  launched: Launched
  place: MachinePlace
  boot: HostBoot
  /** Start without memory, and wait for the order to load this file. */
  memory: string | null
}

/** Where a QEMU finds its memory file: its first handle. */
export const memoryHandle = `fd:${firstHandle}`

/** By which a process is recognised as this machine's. */
export const nameOf = ({ run }: MachinePlace): string => `guest=${run.replaceAll(',', ',,')}/machine`

const consoleLine = 'console=ttyS0 quiet loglevel=3 panic=-1 reboot=t'

const json = (value: object): string => JSON.stringify(value)

/** The arguments, and what QEMU starts with. */
export function qemuArguments({ id, kind, launched, place, boot, memory: file }: Launch): {
  args: string[]
  handles: Handle[]
} {
  const handles: Handle[] = file === null ? [] : [{ read: file }]
  const opened = (handle: Handle): string => String(firstHandle + handles.push(handle) - 1)
  const socket = (name: string, listen: string): string[] => [
    '-chardev',
    `socket,id=${name},fd=${opened({ listen })},server=on,wait=off`,
  ]
  const { accelerator } = boot
  // A versioned q35, so that a suspended machine finds the same hardware. microvm has no versions.
  const machine = kind === 'microvm' ? 'microvm,acpi=on,pcie=on,rtc=on' : 'pc-q35-7.2'
  // A VM's memory includes its kernel's.
  const memory = launched.memory_mib + (kind === 'microvm' ? kernelMib : 0)
  const append = [
    consoleLine,
    `keelson=${kind}`,
    // Needed to hotplug NICs: microvm's firmware table does not grant the kernel that right.
    ...(kind === 'microvm' ? ['pcie_ports=native'] : []),
    // Without it, a microVM on a busy host hangs: it has no other clock to calibrate against.
    ...(accelerator === 'tcg' ? [`tsc_early_khz=${boot.tscKhz}`] : []),
  ]
  const device = (properties: Record<string, unknown>): string[] => ['-device', json(properties)]
  const ports = Array.from({ length: nicPorts }, (_, port) =>
    device({
      driver: 'pcie-root-port',
      id: `port${port}`,
      bus: 'pcie.0',
      chassis: port + 1,
      slot: port + 1,
      addr: `0x1${port}`,
    }),
  )
  const nics = launched.nics.flatMap((nic, port) =>
    nic
      ? [
          '-netdev',
          json({ type: 'tap', id: backend(port), fd: opened(tapOf(nic)) }),
          ...device(nicProperties(port, nic)),
        ]
      : [],
  )
  const root = {
    driver: 'qcow2',
    'node-name': rootNode,
    discard: 'unmap',
    'detect-zeroes': 'unmap',
    file: { driver: 'file', filename: place.root, discard: 'unmap' },
  }
  const seed = {
    driver: 'qcow2',
    'node-name': 'seed',
    'read-only': true,
    file: { driver: 'file', filename: place.seed },
  }
  const args = [
    ['-name', nameOf(place), '-uuid', id],
    ['-machine', machine],
    ['-accel', accelerator === 'tcg' ? `tcg,tb-size=${translationMib[kind]}` : 'kvm'],
    ['-cpu', accelerator === 'tcg' ? 'max' : 'host'],
    ['-m', String(memory), '-smp', String(launched.cpu_cores)],
    ['-sandbox', 'on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny'],
    ['-nodefaults', '-no-user-config', '-display', 'none', '-no-reboot'],
    ['-kernel', boot.kernel, '-initrd', boot.initramfs, '-append', append.join(' ')],
    ['-rtc', 'base=utc,clock=host'],
    ports.flat(),
    ['-blockdev', json(root)],
    device({
      driver: 'virtio-blk-pci',
      id: 'root-disk',
      drive: rootNode,
      serial: 'root',
      ...onFailedWrites,
      bus: 'pcie.0',
      addr: '0x2',
    }),
    device({ driver: 'virtio-serial-pci', id: 'serial', bus: 'pcie.0', addr: '0x4' }),
    socket('agent', place.agent),
    device({ driver: 'virtserialport', bus: 'serial.0', nr: 1, chardev: 'agent', name: 'keelson.agent' }),
    ['-object', json({ 'qom-type': 'rng-random', id: 'random', filename: '/dev/urandom' })],
    device({ driver: 'virtio-rng-pci', rng: 'random', bus: 'pcie.0', addr: '0x5' }),
    device({ driver: 'virtio-scsi-pci', id: 'scsi', bus: 'pcie.0', addr: '0x7' }),
    kind === 'vm'
      ? [
          ['-blockdev', json(seed)],
          device({ driver: 'virtio-blk-pci', drive: 'seed', serial: 'seed', bus: 'pcie.0', addr: '0x8' }),
        ].flat()
      : [],
    nics,
    socket('console', place.console),
    ['-serial', 'chardev:console'],
    socket('monitor', place.monitor),
    ['-mon', 'chardev=monitor,mode=control'],
    socket('orders', place.orders),
    ['-mon', 'chardev=orders,mode=control'],
    file === null ? [] : ['-incoming', 'defer'],
  ].flat()
  return { args, handles }
}
