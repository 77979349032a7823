import { hostname } from 'node:os'
import { z } from 'zod'

// Every setting of every role, read in one place. docs/configuration.md is generated from this file.

const port = (fallback: number) => z.coerce.number().int().min(0).max(65535).default(fallback)

const commaSeparated = z
  .string()
  .default('')
  .transform((text) => text.split(',').flatMap((part) => part.trim() || []))

const common = {
  KEELSON_LOG_LEVEL: z
    .enum(['trace', 'debug', 'info', 'warn', 'error'])
    .default('info')
    .describe('The least level that is logged'),
}

/** Each role its own port, so that all of them can be on one machine. */
const metrics = (metricsPort: number) => ({
  KEELSON_METRICS_ADDRESS: z
    .string()
    .default('127.0.0.1')
    .describe('Where `/metrics` is served for Prometheus; it has no login'),
  KEELSON_METRICS_PORT: port(metricsPort).describe(
    'The port of `/metrics`, that of the worker and the host being 7086 and 7087; 0: one that is free',
  ),
})
const temporalMetrics = {
  KEELSON_TEMPORAL_METRICS_ADDRESS: z
    .string()
    .regex(/^[^:]+:\d+$/)
    .optional()
    .describe('Where the Temporal SDK serves its own metrics, `address:port`; without it, nowhere'),
}

const mongodb = {
  KEELSON_MONGODB_URL: z
    .string()
    .default('mongodb://127.0.0.1:27080/keelson?replicaSet=rs0')
    .describe('MongoDB, a replica set (transactions need one); writes are w=majority, journaled'),
  KEELSON_MASTER_KEY_FILE: z
    .string()
    .default('.state/master.key')
    .describe('Master keys for secrets at rest: `<id>:<32 bytes, base64>` a line, the first wraps'),
  KEELSON_MASTER_KEY: z
    .string()
    .optional()
    .describe('The master keys themselves, comma separated; stands above the file'),
}

const blobs = {
  KEELSON_S3_BUCKET: z
    .string()
    .optional()
    .describe('A bucket of S3 for what is archived from now on; without it, GridFS in MongoDB'),
  KEELSON_S3_ENDPOINT: z.url().optional().describe('The server of that bucket; without it, that of AWS'),
  KEELSON_S3_REGION: z.string().default('us-east-1').describe('The region of that bucket'),
  KEELSON_S3_ACCESS_KEY: z
    .string()
    .optional()
    .describe('The key’s id; without it, as the machine’s own role has it'),
  KEELSON_S3_SECRET_KEY: z.string().optional().describe('The key itself, a secret'),
}

const temporal = {
  KEELSON_TEMPORAL_ADDRESS: z.string().default('127.0.0.1:7233').describe('Temporal’s gRPC address'),
  KEELSON_TEMPORAL_NAMESPACE: z.string().default('keelson').describe('The Temporal namespace'),
  KEELSON_CODEC_KEY_FILE: z
    .string()
    .default('.state/codec.key')
    .describe('Keys that encrypt Temporal’s payloads, in the form of the master key file'),
}

const api = z.object({
  ...common,
  ...metrics(7085),
  ...mongodb,
  ...blobs,
  ...temporal,
  KEELSON_API_HOST: z.string().default('127.0.0.1').describe('The address the API listens on'),
  KEELSON_API_PORT: port(7080).describe('The port the API listens on'),
  KEELSON_API_URL: z
    .url()
    .default('http://127.0.0.1:7080')
    .describe('How clients reach the API; links are made from it'),
  KEELSON_CONSOLE_URL: z
    .url()
    .optional()
    .describe('Where the links of mails to users lead; without it, KEELSON_API_URL'),
  KEELSON_TEMPORAL_UI_URL: z
    .url()
    .default('http://127.0.0.1:8233')
    .describe('How operators reach the Temporal UI; operations link to it'),
  KEELSON_TLS_CERT_FILE: z
    .string()
    .optional()
    .describe(
      'The certificate (PEM, with its chain) for HTTPS, read again when it changes; KEELSON_API_URL is then to be set too. Without it, HTTP: for this machine, or behind a proxy',
    ),
  KEELSON_TLS_KEY_FILE: z.string().optional().describe('The key of the certificate (PEM)'),
  KEELSON_CORS_ORIGINS: commaSeparated.describe(
    'Origins whose pages may call the API from a browser, comma separated; without it, none',
  ),
  KEELSON_TRUSTED_PROXIES: commaSeparated.describe(
    'Addresses or CIDRs of proxies whose `X-Forwarded-For` is believed, comma separated; without it, none',
  ),
  KEELSON_MAIL_TOPIC_ARN: z
    .string()
    .regex(/^arn:aws[a-z-]*:sns:[a-z0-9-]+:\d{12}:[\w-]{1,256}$/)
    .optional()
    .describe(
      'The SNS topic that reports bounces and complaints to `POST /api/v1/mailsvc/webhook`; without it nothing is taken there',
    ),
  KEELSON_MAIL_TOPIC_HOST: z
    .string()
    .regex(/^[a-z0-9.-]+(:\d+)?$/)
    .optional()
    .describe(
      'The one host that has the topic’s certificates and takes confirmations, `name` or `name:port`; without it, `sns.<the topic’s region>.amazonaws.com`',
    ),
  KEELSON_MAIL_TOPIC_CA_FILE: z
    .string()
    .optional()
    .describe('Whose certificates that host may present, PEM; without it, those that Node trusts'),
  KEELSON_BODY_LIMIT_KIB: z.coerce
    .number()
    .int()
    .positive()
    .default(1024)
    .describe('The largest request body'),
  KEELSON_RATE_PER_SEC: z.coerce
    .number()
    .int()
    .positive()
    .default(500)
    .describe('Requests per second and caller, on each api replica; an address may make ten times as many'),
})

const worker = z.object({
  ...common,
  ...metrics(7086),
  ...temporalMetrics,
  ...mongodb,
  ...blobs,
  ...temporal,
  KEELSON_LOG_ARCHIVE_DAYS: z.coerce
    .number()
    .positive()
    .max(20_000)
    .default(30)
    .describe('Days that archived output of containers is kept'),
  KEELSON_LOG_ARCHIVE_MIB: z.coerce
    .number()
    .positive()
    .default(10_240)
    .describe('What is kept of each container at most, as stored: its oldest output goes first'),
  KEELSON_SMTP_URL: z
    .url()
    .optional()
    .describe(
      'The SMTP server for invitations and resets, `smtps://user:password@host`; without it they go into the worker’s log, links and all',
    ),
  KEELSON_MAIL_FROM: z.string().default('Keelson <keelson@localhost>').describe('Whom mail comes from'),
  KEELSON_WORKFLOW_BUNDLE: z
    .string()
    .default('.state/build/workflows.js')
    .describe('The built workflow code (script/build)'),
})

const host = z.object({
  ...common,
  ...metrics(7087),
  ...temporalMetrics,
  ...temporal,
  KEELSON_API_URL: api.shape.KEELSON_API_URL,
  KEELSON_HOST_NAME: z
    .string()
    .optional()
    .transform((name) => name ?? hostname())
    .describe('The name under which a new host enrols; without it, the machine’s'),
  KEELSON_HOST_TOKEN: z
    .string()
    .optional()
    .describe('The one-time token of `POST /api/v1/platform/hosts`; needed until the host has enrolled'),
  KEELSON_HOST_STATE: z.string().default('.state/host').describe('Where a host keeps its credential'),
  KEELSON_HOST_ADDRESS: z
    .string()
    .default('127.0.0.1')
    .describe('The address of this host: where published ports are'),
  KEELSON_HOST_PLANE_ADDRESS: z
    .string()
    .optional()
    .describe('Where the API reaches the host’s data plane; without it, KEELSON_HOST_ADDRESS'),
  KEELSON_HOST_PORT: port(7081).describe('The port of the host’s data plane'),
  KEELSON_HOST_PORT_RANGE: z
    .string()
    .regex(/^\d+-\d+$/)
    .default('20000-29999')
    .describe('Host ports from which published ports are taken'),
  KEELSON_HOST_CPU_CORES: z.coerce
    .number()
    .positive()
    .optional()
    .describe('CPU cores offered to tenants; without it, all that the machine has'),
  KEELSON_HOST_MEMORY_MIB: z.coerce
    .number()
    .int()
    .positive()
    .optional()
    .describe('Memory offered to tenants; without it, what the machine has less 1 GiB'),
  KEELSON_HOST_DISK_GIB: z.coerce
    .number()
    .int()
    .nonnegative()
    .optional()
    .describe('Disk room offered to tenants; without it, what the file system with the disks has for them'),
  KEELSON_HOST_DISKS: z
    .string()
    .default('.state/host/disks')
    .describe('Where a host keeps its disks; one folder for each host'),
  KEELSON_HOST_DISKS_RUN: z
    .string()
    .default('/run/keelson/disks')
    .describe(
      'Where it mounts them: a short path of its own that is empty after a boot, so that nothing is written to the host in a disk’s place',
    ),
  KEELSON_HOST_MACHINES: z
    .string()
    .default('.state/host/machines')
    .describe(
      'Where a host keeps its microVMs and VMs, and the images’ root disks; one folder for each host',
    ),
  KEELSON_HOST_MACHINES_RUN: z
    .string()
    .default('/run/keelson/machines')
    .describe('Where their sockets are: a short path of its own that is empty after a boot'),
  KEELSON_HOST_GUEST: z
    .string()
    .default('.state/tools/guest')
    .describe('The kernel and the agent that microVMs boot, as `script/bootstrap` makes them'),
  KEELSON_HOST_VM_BUILD: z
    .string()
    .default('images/vm/build')
    .describe('The program that makes VMs’ images, at their first use'),
  KEELSON_HOST_DISK_PORTS: z
    .string()
    .regex(/^\d+-\d+$/)
    .default('30000-30099')
    .describe(
      'Ports on which it serves disks and microVMs that move to other hosts, at KEELSON_HOST_PLANE_ADDRESS',
    ),
  KEELSON_LOG_BACKLOG_MIB: z.coerce
    .number()
    .int()
    .nonnegative()
    .default(512)
    .describe(
      'What a container’s output may take on the host beyond its cap while it cannot be archived; then the oldest is dropped. 0: nothing is archived',
    ),
  KEELSON_DOCKER_HOST: z
    .string()
    .default('unix:///var/run/docker.sock')
    .describe('The Docker Engine of this host'),
  KEELSON_PAUSE_IMAGE: z
    .string()
    .default('busybox:latest')
    .describe('An image with a `sleep`, which keeps the network namespace of a container with NICs'),
  KEELSON_UNDERLAY_ADDRESS: z
    .ipv4()
    .optional()
    .describe(
      'The address by which other hosts reach this one’s VPCs; without it KEELSON_HOST_ADDRESS, where that is IPv4 and no loopback address; else its VPCs end with it',
    ),
  KEELSON_VXLAN_PORT: port(4789).describe(
    'The UDP port of VPCs between hosts: the same on all, and theirs alone',
  ),
  KEELSON_NETWORK_MTU: z.coerce
    .number()
    .int()
    .min(576)
    .max(8950)
    .default(1450)
    .describe('The MTU in VPCs: that of the network between the hosts, less 50'),
  KEELSON_NETWORK_STATE: z
    .string()
    .default('/run/keelson')
    .describe('Where hosts keep what their VPCs are; all users may enter it, since dnsmasq gives up root'),
  KEELSON_NETWORK_RESOLVERS: commaSeparated.describe(
    'Whom subnets with `nat` ask for names, comma separated; without it, the machine’s own',
  ),
  KEELSON_NETWORK_REFUSED: commaSeparated.describe(
    'Networks behind the host’s default route that members of VPCs may not reach, in CIDR notation, comma separated: where services of the platform are',
  ),
  KEELSON_HOST_NAMESPACE: z
    .string()
    .regex(/^[\w.-]{1,64}$/)
    .optional()
    .describe(
      'The host’s network namespace, if it is another than the program’s: of `script/server --hosts`',
    ),
})

const setup = z.object({
  ...common,
  ...mongodb,
  ...temporal,
  KEELSON_OWNER_EMAIL: z
    .email()
    .default('owner@example.com')
    .describe('The first owner, made when there is no tenant yet'),
  KEELSON_OWNER_PASSWORD: z
    .string()
    .min(12)
    .optional()
    .describe('The first owner’s password; without it one is made and printed once'),
  KEELSON_AUDIT_DAYS: z.coerce
    .number()
    .int()
    .positive()
    .max(20_000)
    .default(400)
    .describe('Days that audit events are kept; set when `script/server` starts'),
  KEELSON_HOST_NAME: host.shape.KEELSON_HOST_NAME,
  KEELSON_FURTHER_HOST_NAMES: commaSeparated.describe(
    'Names of further hosts to be announced; set by `script/server --hosts`',
  ),
})

/** The settings of each role. */
export const roleSettings = { api, worker, host, setup }
export type Role = keyof typeof roleSettings
export type Settings<R extends Role> = z.infer<(typeof roleSettings)[R]>

/**
 * Reads the environment for one role. What is set to nothing is not set, as a compose file has to have it. Throws an
 * error that lists every setting that is wrong.
 */
export function readSettings<R extends Role>(role: R): Settings<R> {
  const set = Object.fromEntries(Object.entries(process.env).filter(([, value]) => value !== ''))
  const read = roleSettings[role].safeParse(set)
  if (!read.success) throw new Error(`settings are wrong:\n${z.prettifyError(read.error)}`)
  return read.data as Settings<R>
}

/** Where script/server keeps everything. */
export const stateFolder = (): string => process.env['KEELSON_STATE'] ?? '.state'
