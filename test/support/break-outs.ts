import { statSync } from 'node:fs'
import { networkInterfaces } from 'node:os'
import type { OtherServer } from './other-servers.ts'
import { facts, stackSettings } from './stack.ts'

// What code of a tenant tries on a container machine, from where it runs with the least rights: in an application, and in a
// step of a build. test/drivers/docker/machines.test.ts tries the machine itself.

const { dev } = statSync('/')
const disk = `b ${(dev >> 8) & 0xfff} ${(dev & 0xff) | ((dev >> 12) & 0xfff00)}`

const local = {
  'the disk of the host': `mknod /tmp/disk ${disk} && dd if=/tmp/disk of=/dev/null bs=512 count=1`,
  'the memory of the host': 'mknod /tmp/mem c 1 1 && dd if=/tmp/mem of=/dev/null bs=512 count=1',
  'devices that it allows itself': 'echo a >/sys/fs/cgroup/devices/devices.allow',
  'a program for the host to run, in its group': 'echo /x >/sys/fs/cgroup/memory/release_agent',
  'a program for the host to run, in a hierarchy of its own':
    'mkdir -p /tmp/groups && mount -t cgroup -o memory groups /tmp/groups && echo /x >/tmp/groups/release_agent',
  'a program for core dumps': 'echo "|/x" >/proc/sys/kernel/core_pattern',
  'a program for modules': 'echo /x >/proc/sys/kernel/modprobe',
  'keys to the kernel': 'echo h >/proc/sysrq-trigger',
  // A file that is none is refused for another reason by a kernel that would load it.
  'a kernel module': 'echo x >/tmp/x.ko; insmod /tmp/x.ko 2>&1 | grep -v "not permitted"',
  // To what it is, so that a success does no harm. date itself does not fail.
  'the clock': '! date -s "@$(date +%s)" 2>&1 | grep "not permitted"',
  'a file system': 'mkdir -p /tmp/m && mount -t tmpfs m /tmp/m',
  'a fresh /proc': 'mkdir -p /tmp/p && mount -t proc p /tmp/p',
  'namespaces of its own': 'unshare -m true',
  'the processes of the machine': 'nsenter -t 1 -m true && [ -e /usr/local/bin/machine-init ]',
  'the engine of the machine': '[ -S /run/docker.sock ]',
  'the files of other applications': '[ -e /opt/apps ] || [ -e /var/lib/machine ]',
  'its own addresses': 'ip address add 10.77.0.99/24 dev eth0',
}

/** The addresses by which other machines reach this one. */
export const outsideAddresses = (): string[] =>
  Object.entries(networkInterfaces()).flatMap(([name, found]) =>
    /^e(th|n)/.test(name)
      ? (found ?? []).flatMap(({ family, address }) => (family === 'IPv4' ? address : []))
      : [],
  )

/** The ports of the platform at the addresses of its machine, and that of an API which listens on all of them. */
function platform(openPort: number): string[] {
  const { KEELSON_MONGODB_URL, KEELSON_TEMPORAL_ADDRESS } = stackSettings()
  const ports = [facts().api_url, KEELSON_MONGODB_URL, `http://${KEELSON_TEMPORAL_ADDRESS}`].map((url) =>
    Number(/:(\d+)/.exec(url.replace(/^\w+:\/\//, ''))?.[1]),
  )
  return ['10.77.0.1', '172.20.0.1', ...outsideAddresses()].flatMap((address) =>
    [...ports, openPort].map((port) => `${address} ${port}`),
  )
}

/** An instance of another tenant, which answers with its name: networks between may answer for any address. */
export interface Stranger {
  address: string
  name: string
}

const answer = ({ at, path, header, has }: OtherServer['registry']): string =>
  `wget -q -T 2 -O - --header "${header}" http://${at}${path} | grep "${has}"`

/** All that is tried, by what it would give. `openPort`: of an API that every address of this machine leads to. */
export function breakOuts(
  { address, name }: Stranger,
  other: OtherServer,
  openPort: number,
): Record<string, string> {
  const reach = platform(openPort).map((at) => [`a connection to ${at}`, `nc -w 1 ${at} -e true`])
  return {
    ...local,
    ...Object.fromEntries(reach),
    'an instance of another tenant': `wget -q -T 2 -O - http://${address}/ | grep "${name}"`,
    'an application of another deploy server': answer(other.application),
    'the registry of another deploy server': answer(other.registry),
  }
}

/** A script of busybox that says of each whether it was refused, after what it can do: which shows that the tries are right. */
export function breakOutScript(tries: Record<string, string>): string {
  const lines = Object.entries(tries).map(
    ([what, command]) =>
      `( ${command} ) >/dev/null 2>&1 && echo "BROKE OUT: ${what}" || echo "refused: ${what}"`,
  )
  const works = [
    '(nc -l -p 4999 >/dev/null 2>&1 &); sleep 1; nc -w 1 127.0.0.1 4999 -e true && echo "works: a connection"',
    'mknod /tmp/null c 1 3 && echo x >/tmp/null && echo "works: a device that all have"',
  ]
  return [...works, ...lines].join('\n')
}

export const expected = (tries: Record<string, string>): string[] => [
  'works: a connection',
  'works: a device that all have',
  ...Object.keys(tries).map((what) => `refused: ${what}`),
]
