import { hostname } from 'node:os'
import { z } from 'zod'
import { api } from './api.ts'
import {
  commaSeparated,
  common,
  metrics,
  modelGatewayUrl,
  namespace,
  port,
  privateRegistries,
  temporalMetrics,
} from './shared.ts'

export const host = z.object({
  ...common,
  ...metrics(7087),
  ...temporalMetrics,
  ...namespace,
  ...privateRegistries,
  ...modelGatewayUrl,
  KEELSON_API_URL: api.shape.KEELSON_API_URL,
  KEELSON_GATEWAY_URL: z
    .url({ protocol: /^https?$/ })
    .default('http://127.0.0.1:7088')
    .describe('The URL by which hosts reach the gateway, `https://` for TLS'),
  KEELSON_GATEWAY_CA_FILE: z
    .string()
    .optional()
    .describe('Certificate authorities for the gateway’s certificate (PEM); without it, those of the system'),
  KEELSON_HOST_NAME: z
    .string()
    .optional()
    .transform((name) => name ?? hostname())
    .describe('The name of a new host when it enrols; without it, the machine’s name'),
  KEELSON_HOST_TOKEN: z
    .string()
    .optional()
    .describe('The one-time token from `POST /api/v1/platform/hosts`; needed until the host has enrolled'),
  KEELSON_HOST_STATE: z.string().default('.state/host').describe('The folder with the host’s credential'),
  KEELSON_HOST_ADDRESS: z
    .string()
    .default('127.0.0.1')
    .describe('The host’s address, where its published ports are reached'),
  KEELSON_HOST_PLANE_ADDRESS: z
    .string()
    .optional()
    .describe(
      'The address by which the API and other hosts reach the host; without it, KEELSON_HOST_ADDRESS',
    ),
  KEELSON_HOST_PORT: port(7081).describe('The port of the host’s data plane'),
  KEELSON_HOST_PORT_RANGE: z
    .string()
    .regex(/^\d+-\d+$/)
    .default('20000-29999')
    .describe('The host ports for published ports'),
  KEELSON_RESERVED_PORTS: commaSeparated
    .pipe(z.array(z.string().regex(/^\d+(-\d+)?$/)))
    .describe(
      'Ports of KEELSON_HOST_PORT_RANGE that no instance gets, such as `27017` or `27000-27100`, comma separated; the platform’s own ports are always reserved',
    ),
  KEELSON_HOST_CPU_CORES: z.coerce
    .number()
    .positive()
    .optional()
    .describe('CPU cores offered to tenants; without it, all of the machine’s'),
  KEELSON_HOST_MEMORY_MIB: z.coerce
    .number()
    .int()
    .positive()
    .optional()
    .describe('Memory offered to tenants; without it, the machine’s memory less 1 GiB'),
  KEELSON_HOST_DISK_GIB: z.coerce
    .number()
    .int()
    .nonnegative()
    .optional()
    .describe(
      'Disk space offered to tenants; without it, the free space of the disks’ file system plus what disks already use',
    ),
  KEELSON_HOST_DISKS: z
    .string()
    .default('.state/host/disks')
    .describe('The folder with the host’s disks; hosts cannot share one'),
  KEELSON_HOST_DISKS_RUN: z
    .string()
    .default('/run/keelson/disks')
    .describe(
      'The folder where disks are mounted: a short path that is empty after a boot, so that writes never land on the host instead of a disk',
    ),
  KEELSON_HOST_MACHINES: z
    .string()
    .default('.state/host/machines')
    .describe('The folder with the host’s microVMs, VMs and the images’ root disks; hosts cannot share one'),
  KEELSON_HOST_MACHINES_RUN: z
    .string()
    .default('/run/keelson/machines')
    .describe('The folder with the sockets of microVMs and VMs: a short path that is empty after a boot'),
  KEELSON_HOST_LOAD_BALANCERS: z
    .string()
    .default('.state/host/load-balancers')
    .describe('The folder with the host’s load balancers; hosts cannot share one'),
  KEELSON_HOST_LOAD_BALANCERS_RUN: z
    .string()
    .default('/run/keelson/lb')
    .describe(
      'The folder with the load balancers’ sockets: a path of at most 37 bytes that is empty after a boot',
    ),
  KEELSON_HOST_DOORS_RUN: z
    .string()
    .default('/run/keelson/doors')
    .describe(
      'The folder with the sockets by which runners of AI workflows reach the platform: a path of at most 60 bytes that is empty after a boot, the same for the host and its Docker Engine',
    ),
  KEELSON_HOST_GUEST: z
    .string()
    .default('.state/tools/guest')
    .describe('The folder with the microVMs’ kernel and agent, built by `script/bootstrap`'),
  KEELSON_HOST_LAUNCHER: z
    .string()
    .default('.state/tools/launcher/launcher')
    .describe(
      'The program that starts other programs for the host, built by `script/bootstrap`; without it the host forks, which takes ten times as long',
    ),
  KEELSON_HOST_VM_BUILD: z
    .string()
    .default('images/vm/build')
    .describe('The program that builds a VM image at its first use'),
  KEELSON_HOST_DISK_PORTS: z
    .string()
    .regex(/^\d+-\d+$/)
    .default('30000-30099')
    .describe('The ports that serve disks and machines moving to other hosts, at KEELSON_HOST_PLANE_ADDRESS'),
  KEELSON_LOG_BACKLOG_MIB: z.coerce
    .number()
    .int()
    .nonnegative()
    .default(512)
    .describe(
      'Output that a container may keep on the host beyond its cap while the archive is unavailable; beyond that the oldest is dropped. 0 turns archiving off',
    ),
  KEELSON_DOCKER_HOST: z
    .string()
    .default('unix:///var/run/docker.sock')
    .describe('The Docker Engine of this host'),
  KEELSON_CONTAINER_BRIDGE: z
    .string()
    .regex(/^[\w.-]{1,15}$/)
    .optional()
    .describe(
      'The bridge of the engine’s default network, if only Keelson’s containers are on it; without it, the host makes a network of its own on the engine',
    ),
  KEELSON_CONTAINER_POOL: z
    .cidrv4()
    .default('10.64.0.0/10')
    .describe('The range from which the host’s own network for containers takes a free /22'),
  KEELSON_CONTAINER_IO_MIB: z.coerce
    .number()
    .int()
    .nonnegative()
    .default(256)
    .describe(
      'How much each container may read, and may write, in MiB a second on the disk with the engine’s files; the same for each machine and each of its disks. 0: unlimited',
    ),
  KEELSON_CONTAINER_IOPS: z.coerce
    .number()
    .int()
    .positive()
    .default(8_192)
    .describe('The same limit as KEELSON_CONTAINER_IO_MIB, in operations a second'),
  KEELSON_IMAGE_GIB: z.coerce
    .number()
    .positive()
    .default(20)
    .describe('The largest image that the host pulls, unpacked; a larger one is `image_too_large`'),
  KEELSON_IMAGES_FREE_GIB: z.coerce
    .number()
    .nonnegative()
    .default(5)
    .describe(
      'Free space that images leave, in GiB, on the disk with the engine’s files and on the one with the machines’. With less, the host removes unused images, the longest unused first, and pulls none',
    ),
  KEELSON_IMAGES_UNUSED_DAYS: z.coerce
    .number()
    .positive()
    .default(7)
    .describe('Days after which an image that the host pulled and nothing uses is removed'),
  KEELSON_HOST_CONTAINER_MACHINES: z
    .enum(['true', 'false'])
    .default('false')
    .describe(
      'Whether deploy servers may have machines on this host that are containers; not for tenants who distrust each other',
    ),
  KEELSON_HOST_VM_MACHINES: z
    .enum(['kvm', 'always', 'never'])
    .default('kvm')
    .describe(
      'Whether deploy servers may have machines on this host that are VMs: `kvm` where KVM works, `always` also without KVM (ten times slower), or `never`',
    ),
  KEELSON_ARCHIVE_EVERY_SEC: z.coerce
    .number()
    .positive()
    .default(60)
    .describe(
      'How often, in seconds, the host archives what databases with point-in-time recovery have written; what was written since can be lost with a machine',
    ),
  KEELSON_PAUSE_IMAGE: z
    .string()
    .default('busybox:latest')
    .describe('An image with `sleep`, whose container keeps the network namespace of a container with NICs'),
  KEELSON_UNDERLAY_ADDRESS: z
    .ipv4()
    .optional()
    .describe(
      'The IPv4 address by which other hosts reach this host’s VPCs; without it, KEELSON_HOST_ADDRESS unless that is a loopback or IPv6 address; without either, its VPCs do not reach other hosts',
    ),
  KEELSON_VXLAN_PORT: port(4789).describe(
    'The UDP port of VPCs between hosts: the same on all hosts, and used by nothing else',
  ),
  KEELSON_NETWORK_TUNNEL: z
    .enum(['wireguard', 'none'])
    .default('wireguard')
    .describe(
      'How traffic of VPCs passes between hosts: in a tunnel (`wireguard`), or without one (`none`), where only hosts can read and send on that network; the same on all hosts',
    ),
  KEELSON_TUNNEL_PORT: port(7084).describe(
    'The UDP port of the tunnel between hosts: the same on all hosts, open between them, and used by nothing else',
  ),
  KEELSON_HOST_WIREGUARD: z
    .string()
    .default('.state/tools/wireguard/bin/wireguard-go')
    .describe('WireGuard for a kernel that has none, built by `script/bootstrap`'),
  KEELSON_NETWORK_MTU: z.coerce
    .number()
    .int()
    .min(576)
    .max(8950)
    .optional()
    .describe(
      'The MTU in VPCs, the same on all hosts: that of the network between the hosts less 130, or less 50 without a tunnel; without it, 1370 or 1450',
    ),
  KEELSON_NETWORK_STATE: z
    .string()
    .default('/run/keelson')
    .describe(
      'The folder with the records of the host’s VPCs; all users must be able to enter it, because dnsmasq gives up root',
    ),
  KEELSON_NETWORK_RESOLVERS: commaSeparated.describe(
    'The DNS resolvers of subnets with `nat`, comma separated; without it, the machine’s own',
  ),
  KEELSON_NETWORK_REFUSED: commaSeparated.describe(
    'Networks behind the host’s default route that members of VPCs and containers must not reach, as CIDRs, comma separated: those with services of the platform',
  ),
  KEELSON_HOST_NAMESPACE: z
    .string()
    .regex(/^[\w.-]{1,64}$/)
    .optional()
    .describe(
      'The host’s network namespace, if it differs from the program’s; set by `script/server --hosts`',
    ),
})
