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

const mongodb = {
  KEELSON_MONGODB_URL: z
    .string()
    .default('mongodb://127.0.0.1:27080/keelson?replicaSet=rs0')
    .describe('MongoDB, a replica set (transactions need one); writes are w=majority, journaled'),
  KEELSON_MASTER_KEY_FILE: z
    .string()
    .default('.state/master.key')
    .describe('Keys for secrets at rest: `<id>:<32 bytes, base64>` a line, the first seals'),
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
  ...mongodb,
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
  KEELSON_CORS_ORIGINS: commaSeparated.describe(
    'Origins whose pages may call the API from a browser, comma separated; without it, none',
  ),
  KEELSON_TRUSTED_PROXIES: commaSeparated.describe(
    'Addresses or CIDRs of proxies whose `X-Forwarded-For` is believed, comma separated; without it, none',
  ),
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
  ...mongodb,
  ...temporal,
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
    .describe('The address of this host: its data plane and the containers’ published ports'),
  KEELSON_HOST_PORT: port(7081).describe('The port of the host’s data plane'),
  KEELSON_HOST_PORT_RANGE: z
    .string()
    .regex(/^\d+-\d+$/)
    .default('20000-29999')
    .describe('Host ports from which containers’ published ports are taken'),
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
  KEELSON_DOCKER_HOST: z
    .string()
    .default('unix:///var/run/docker.sock')
    .describe('The Docker Engine of this host'),
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
})

/** The settings of each role. */
export const roleSettings = { api, worker, host, setup }
export type Role = keyof typeof roleSettings
export type Settings<R extends Role> = z.infer<(typeof roleSettings)[R]>

/** Reads the environment for one role. Throws an error that lists every setting that is wrong. */
export function readSettings<R extends Role>(role: R): Settings<R> {
  const read = roleSettings[role].safeParse(process.env)
  if (!read.success) throw new Error(`settings are wrong:\n${z.prettifyError(read.error)}`)
  return read.data as Settings<R>
}

/** Where script/server keeps everything. */
export const stateFolder = (): string => process.env['KEELSON_STATE'] ?? '.state'
