import { hostname } from 'node:os'
import { z } from 'zod'

// All settings of all roles. docs/configuration.md is generated from this file.

const port = (fallback: number) => z.coerce.number().int().min(0).max(65535).default(fallback)

const commaSeparated = z
  .string()
  .default('')
  .transform((text) => text.split(',').flatMap((part) => part.trim() || []))

const common = {
  KEELSON_LOG_LEVEL: z
    .enum(['trace', 'debug', 'info', 'warn', 'error'])
    .default('info')
    .describe('The lowest level that is logged'),
}

/** Each role has a different default port, so that all roles can run on one machine. */
const metrics = (metricsPort: number) => ({
  KEELSON_METRICS_ADDRESS: z
    .string()
    .default('127.0.0.1')
    .describe('The address that serves `/metrics` for Prometheus; it has no login'),
  KEELSON_METRICS_PORT: port(metricsPort).describe(
    'The port of `/metrics`; the worker’s default is 7086, the host’s 7087, the gateway’s 7089, the model gateway’s 7093; 0 takes a free port',
  ),
})
const temporalMetrics = {
  KEELSON_TEMPORAL_METRICS_ADDRESS: z
    .string()
    .regex(/^[^:]+:\d+$/)
    .optional()
    .describe('`address:port` that serves the Temporal SDK’s own metrics; without it they are off'),
}

const database = {
  KEELSON_MONGODB_URL: z
    .string()
    .default('mongodb://127.0.0.1:27080/keelson?replicaSet=rs0')
    .describe('MongoDB’s URL; transactions need a replica set; writes use w=majority, journaled'),
}

const mongodb = {
  ...database,
  KEELSON_MASTER_KEY_FILE: z
    .string()
    .default('.state/master.key')
    .describe(
      'File with the master keys for secrets at rest, one `<id>:<32 bytes, base64>` per line; the first key wraps',
    ),
  KEELSON_MASTER_KEY: z
    .string()
    .optional()
    .describe('The master keys themselves, comma separated; takes precedence over the file'),
}

const blobs = {
  KEELSON_S3_BUCKET: z
    .string()
    .optional()
    .describe('S3 bucket for newly archived output; without it, GridFS in MongoDB'),
  KEELSON_S3_ENDPOINT: z.url().optional().describe('The S3 server of the bucket; without it, AWS'),
  KEELSON_S3_REGION: z.string().default('us-east-1').describe('The region of the bucket'),
  KEELSON_S3_ACCESS_KEY: z
    .string()
    .optional()
    .describe('The access key’s id; without it, the machine’s own role is used'),
  KEELSON_S3_SECRET_KEY: z.string().optional().describe('The secret access key'),
}

const storeRoom = {
  KEELSON_STORE_FREE_GIB: z.coerce
    .number()
    .nonnegative()
    .default(5)
    .describe(
      'Space that stays free on MongoDB’s disk: below it, output, artifacts and backups in GridFS are refused, answers of models are not kept, and everything else goes on; below it or 5 % of the disk, if that is less, no new work is accepted; 0: no such limits',
    ),
}

const namespace = {
  KEELSON_TEMPORAL_NAMESPACE: z.string().default('keelson').describe('The Temporal namespace'),
}

const temporal = {
  KEELSON_TEMPORAL_ADDRESS: z.string().default('127.0.0.1:7233').describe('Temporal’s gRPC address'),
  KEELSON_TEMPORAL_TLS: z
    .enum(['true', 'false'])
    .optional()
    .describe(
      'Whether Temporal is reached by TLS; without it, only if one of the following settings is given',
    ),
  KEELSON_TEMPORAL_TLS_CA_FILE: z
    .string()
    .optional()
    .describe('Certificate authorities for Temporal’s certificate (PEM); without it, those of the system'),
  KEELSON_TEMPORAL_TLS_SERVER_NAME: z
    .string()
    .optional()
    .describe('The name in Temporal’s certificate, if it is not that of the address'),
  KEELSON_TEMPORAL_TLS_CERT_FILE: z
    .string()
    .optional()
    .describe('The client certificate for Temporal (PEM), with KEELSON_TEMPORAL_TLS_KEY_FILE'),
  KEELSON_TEMPORAL_TLS_KEY_FILE: z.string().optional().describe('Its private key (PEM)'),
  KEELSON_TEMPORAL_API_KEY: z.string().optional().describe('The API key for Temporal, as a hosted one has'),
  ...namespace,
  KEELSON_CODEC_KEY_FILE: z
    .string()
    .default('.state/codec.key')
    .describe('File with the keys that encrypt Temporal’s payloads, in the format of the master key file'),
}

const appsDomain = z
  .string()
  .regex(/^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$/)
  .default('localhost')
  .describe(
    'The domain of deploy servers’ applications, which leads to their load balancers: every name below it',
  )

const outbound = {
  KEELSON_OUTBOUND_ALLOWED: commaSeparated.describe(
    'Private targets that tenants’ webhooks, backups, connectors, tools and workflows may have, as the exact `host:port` of their URLs, comma separated; without it, only public addresses',
  ),
}

const providerUrl = (title: string, fallback: string) =>
  z
    .url({ protocol: /^https?$/ })
    .default(fallback)
    .describe(`Where ${title} is, for tenants’ connectors`)
const clientId = (title: string) =>
  z
    .string()
    .optional()
    .describe(`The id of the platform’s OAuth client at ${title}; without it tenants cannot log in there`)
const clientSecret = (title: string) =>
  z.string().optional().describe(`The secret of the platform’s OAuth client at ${title}, if it has one`)

/** Of the providers of connectors. A private place also needs KEELSON_OUTBOUND_ALLOWED. */
const providers = {
  KEELSON_GITHUB_URL: providerUrl('GitHub’s site', 'https://github.com'),
  KEELSON_GITHUB_API_URL: providerUrl('GitHub’s API', 'https://api.github.com'),
  KEELSON_GITHUB_CLIENT_ID: clientId('GitHub'),
  KEELSON_GITHUB_CLIENT_SECRET: clientSecret('GitHub'),
  KEELSON_GITLAB_URL: providerUrl('GitLab', 'https://gitlab.com'),
  KEELSON_GITLAB_CLIENT_ID: clientId('GitLab'),
  KEELSON_GITLAB_CLIENT_SECRET: clientSecret('GitLab'),
  KEELSON_GITEA_URL: z
    .url({ protocol: /^https?$/ })
    .optional()
    .describe('Where Gitea is, for tenants’ connectors; without it each tenant says where its own is'),
  KEELSON_GITEA_CLIENT_ID: clientId('Gitea'),
  KEELSON_GITEA_CLIENT_SECRET: clientSecret('Gitea'),
  KEELSON_ANTHROPIC_URL: providerUrl('Anthropic’s API', 'https://api.anthropic.com/v1'),
  KEELSON_OPENAI_URL: providerUrl('OpenAI’s API', 'https://api.openai.com/v1'),
  KEELSON_GOOGLE_URL: providerUrl('Google’s API', 'https://generativelanguage.googleapis.com/v1beta'),
  KEELSON_MISTRAL_URL: providerUrl('Mistral’s API', 'https://api.mistral.ai/v1'),
  KEELSON_GROQ_URL: providerUrl('Groq’s API', 'https://api.groq.com/openai/v1'),
  KEELSON_XAI_URL: providerUrl('xAI’s API', 'https://api.x.ai/v1'),
  KEELSON_DEEPSEEK_URL: providerUrl('DeepSeek’s API', 'https://api.deepseek.com/v1'),
  KEELSON_OPENROUTER_URL: providerUrl('OpenRouter’s API', 'https://openrouter.ai/api/v1'),
}

const embedders = {
  KEELSON_EMBEDDERS: z
    .string()
    .default('.state/tools/embedder')
    .transform((text) => text.split(',').flatMap((part) => part.trim() || []))
    .describe(
      'Folders with models that embed texts on the platform itself, comma separated; of two with one name, the first is used: docs/model-gateway.md',
    ),
}

const modelGatewayUrl = {
  KEELSON_MODELS_URL: z
    .url({ protocol: /^https?$/ })
    .default('http://127.0.0.1:7092')
    .describe(
      'The URL by which the platform itself, and its hosts for runners of AI workflows, reach the model gateway, `https://` for TLS',
    ),
}

const privateRegistries = {
  KEELSON_IMAGES_PRIVATE: commaSeparated.describe(
    'Registries at private addresses from which they may come, or with names that lead there, as the exact `host:port` in the names of images, comma separated; without it, none',
  ),
}

const images = {
  KEELSON_IMAGES_ALLOWED: commaSeparated.describe(
    'Registries from which tenants’ images may come, or the beginnings of repositories, such as `docker.io,ghcr.io/team`, comma separated; without it, all public ones',
  ),
  KEELSON_IMAGES_DENIED: commaSeparated.describe('The same for those from which they may not come'),
  ...privateRegistries,
}

const imageName = z.string().regex(/^[\w][\w.\-/:@]{0,254}$/)
const image = (fallback: string, what: string) => imageName.default(fallback).describe(what)

/** Images for builds on deploy servers. A host copies those that its own engine has into the workers. */
const builds = {
  KEELSON_REGISTRY_IMAGE: image(
    'registry:2',
    'The image of deploy servers’ registries (CNCF Distribution 2 or 3); `script/images` makes one where no registry answers',
  ),
  KEELSON_BUILD_NODE_IMAGE: image(
    'node:24-slim',
    'The image on which generated Dockerfiles build and run Node',
  ),
  KEELSON_BUILD_PYTHON_IMAGE: image('python:3.13-slim', 'The same for Python'),
  KEELSON_BUILD_GO_IMAGE: image('golang:1.25-bookworm', 'The image on which they build Go'),
  KEELSON_BUILD_RUN_IMAGE: image('debian:bookworm-slim', 'The image on which they run Go programs'),
  KEELSON_BUILD_COMPOSER_IMAGE: image('composer:2', 'The image from which they take Composer'),
  KEELSON_BUILD_PHP_IMAGE: image(
    'dunglas/frankenphp:1-php8.4',
    'The image on which they run PHP (FrankenPHP)',
  ),
  KEELSON_BUILD_STATIC_IMAGE: image('caddy:2-alpine', 'The image with which they serve files (Caddy)'),
  KEELSON_NIXPACKS_IMAGE: imageName
    .optional()
    .describe(
      'An image with the program `nixpacks`, which then makes the Dockerfiles of artifacts without one; without it, the platform does',
    ),
  KEELSON_NIXPACKS_BASE_IMAGE: imageName
    .optional()
    .describe('The image on which those build and run; without it, the one that Nixpacks names'),
}

const databaseImage = (title: string) =>
  z
    .string()
    .regex(/^\w[\w.-]*(:\d+)?(\/\w[\w.-]*)*$/)
    .optional()
    .describe(`The image of ${title} databases without its tag; without it, the public one`)

/** A host copies those that its own engine has into the workers. */
const databases = {
  KEELSON_DATABASE_POSTGRESQL_IMAGE: databaseImage('PostgreSQL'),
  KEELSON_DATABASE_MYSQL_IMAGE: databaseImage('MySQL'),
  KEELSON_DATABASE_MARIADB_IMAGE: databaseImage('MariaDB'),
  KEELSON_DATABASE_MONGODB_IMAGE: databaseImage('MongoDB'),
  KEELSON_DATABASE_REDIS_IMAGE: databaseImage('Redis'),
  KEELSON_DATABASE_KEYDB_IMAGE: databaseImage('KeyDB'),
  KEELSON_DATABASE_DRAGONFLY_IMAGE: databaseImage('Dragonfly'),
  KEELSON_DATABASE_CLICKHOUSE_IMAGE: databaseImage('ClickHouse'),
}

const lines = {
  KEELSON_OPERATIONS_AT_ONCE: z.coerce
    .number()
    .int()
    .min(1)
    .max(10_000)
    .default(16)
    .describe(
      'Operations of one tenant, of one verb on one kind of instances, that are under way at once; the others wait as `pending`',
    ),
}

const api = z.object({
  ...common,
  ...metrics(7085),
  ...mongodb,
  ...blobs,
  ...storeRoom,
  ...temporal,
  ...outbound,
  ...modelGatewayUrl,
  ...providers,
  ...images,
  ...lines,
  KEELSON_API_HOST: z.string().default('127.0.0.1').describe('The address the API listens on'),
  KEELSON_API_PORT: port(7080).describe('The port the API listens on'),
  KEELSON_API_URL: z
    .url()
    .default('http://127.0.0.1:7080')
    .describe('The URL by which clients reach the API; links use it'),
  KEELSON_CONSOLE_URL: z
    .url()
    .optional()
    .describe('The URL for links in mails to users; without it, KEELSON_API_URL'),
  KEELSON_TEMPORAL_UI_URL: z
    .url()
    .default('http://127.0.0.1:8233')
    .describe('The URL by which operators reach the Temporal UI; operations link to it'),
  KEELSON_TLS_CERT_FILE: z
    .string()
    .optional()
    .describe(
      'The certificate for HTTPS (PEM, with its chain), reloaded when it changes; set KEELSON_API_URL too. Without it the API serves HTTP, for this machine or behind a proxy',
    ),
  KEELSON_TLS_KEY_FILE: z.string().optional().describe('The certificate’s private key (PEM)'),
  KEELSON_CORS_ORIGINS: commaSeparated.describe(
    'Origins whose pages may call the API from a browser, comma separated; without it, none',
  ),
  KEELSON_TRUSTED_PROXIES: commaSeparated.describe(
    'Addresses or CIDRs of proxies whose `X-Forwarded-For` is trusted, comma separated; without it, none',
  ),
  KEELSON_APPS_DOMAIN: appsDomain,
  KEELSON_MACHINE_KINDS: z
    .string()
    .default('vm,container')
    .transform((text) => text.split(',').map((kind) => kind.trim()))
    .pipe(z.array(z.enum(['vm', 'container'])).min(1))
    .describe(
      'What the machines of new deploy servers may be, the preferred first, comma separated; a new one gets the first that a host may run; without it, `vm,container`',
    ),
  ...builds,
  ...databases,
  KEELSON_MAIL_TOPIC_ARN: z
    .string()
    .regex(/^arn:aws[a-z-]*:sns:[a-z0-9-]+:\d{12}:[\w-]{1,256}$/)
    .optional()
    .describe(
      'The SNS topic that reports bounces and complaints to `POST /api/v1/mailsvc/webhook`; without it the webhook answers 404',
    ),
  KEELSON_MAIL_TOPIC_HOST: z
    .string()
    .regex(/^[a-z0-9.-]+(:\d+)?$/)
    .optional()
    .describe(
      'The only host that serves the topic’s certificates and takes confirmations, `name` or `name:port`; without it, `sns.<the topic’s region>.amazonaws.com`',
    ),
  KEELSON_MAIL_TOPIC_CA_FILE: z
    .string()
    .optional()
    .describe('Certificate authorities for that host (PEM); without it, those that Node trusts'),
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
    .describe(
      'Requests per second for each caller, on each api replica; an address may make ten times as many',
    ),
  KEELSON_OPEN_PER_TENANT: z.coerce
    .number()
    .int()
    .positive()
    .default(200)
    .describe(
      'WebSockets that a tenant may have open at once on each api replica, and as many streams, such as logs that are followed; a tenth as many archives, a twentieth as many probes of tools, ten times as many waits for operations',
    ),
})

const worker = z.object({
  ...common,
  ...metrics(7086),
  ...temporalMetrics,
  ...mongodb,
  ...blobs,
  ...temporal,
  ...outbound,
  ...modelGatewayUrl,
  ...embedders,
  ...lines,
  KEELSON_DOCUMENTS_AT_ONCE: z.coerce
    .number()
    .int()
    .min(1)
    .max(64)
    .default(4)
    .describe(
      'Steps of uploaded documents that each worker has under way at once; two of them at most read a document, which may take 1 GiB of memory',
    ),
  KEELSON_OPERATION_DAYS: z.coerce
    .number()
    .positive()
    .max(20_000)
    .default(400)
    .describe('Days to keep the records of operations that have ended'),
  KEELSON_RUN_DAYS: z.coerce
    .number()
    .positive()
    .max(20_000)
    .default(90)
    .describe('Days to keep runs of AI workflows that have ended, with their values'),
  KEELSON_LOG_ARCHIVE_DAYS: z.coerce
    .number()
    .positive()
    .max(20_000)
    .default(30)
    .describe('Days to keep containers’ archived output'),
  KEELSON_LOG_ARCHIVE_MIB: z.coerce
    .number()
    .positive()
    .default(10_240)
    .describe('Most archived output to keep per container, as stored; the oldest goes first'),
  KEELSON_SMTP_URL: z
    .url()
    .optional()
    .describe(
      'The SMTP server for invitations and password resets, `smtps://user:password@host`; without it the worker writes mails to files in KEELSON_MAIL_FOLDER',
    ),
  KEELSON_MAIL_FROM: z.string().default('Keelson <keelson@localhost>').describe('The sender of mails'),
  KEELSON_MAIL_FOLDER: z
    .string()
    .default('.state/mails')
    .describe('The folder for mails without an SMTP server: files with links that open accounts'),
  KEELSON_ACME_DIRECTORY: z
    .url()
    .default('https://acme-v02.api.letsencrypt.org/directory')
    .describe('The ACME directory of the certificate authority for certificates by domain'),
  KEELSON_ACME_CONTACT: z
    .email()
    .optional()
    .describe('The e-mail address that the authority gets for each account; without it, none'),
  KEELSON_ACME_CA: z
    .string()
    .optional()
    .describe(
      'Certificate authorities for the directory’s own TLS (PEM); without it, those that Node trusts',
    ),
  KEELSON_CERTIFICATE_CHECK_SEC: z.coerce
    .number()
    .int()
    .positive()
    .default(3600)
    .describe('How often the platform renews due certificates and warns of those that expire'),
  KEELSON_CONNECTOR_CHECK_SEC: z.coerce
    .number()
    .int()
    .positive()
    .default(60)
    .describe('How often the platform refreshes the tokens of connectors that end soon'),
  ...providers,
  KEELSON_APPS_DOMAIN: appsDomain,
  KEELSON_MACHINE_IMAGE: z
    .string()
    .default('keelson/machine:1')
    .describe('The image of deploy servers’ container machines, built by `script/images`'),
  KEELSON_RAG_IMAGE: image(
    'keelson/rag:1',
    'The image of the stores of tenants’ documents (`images/rag`), built by `script/images`',
  ),
  KEELSON_RAG_PGVECTOR_IMAGE: image(
    'keelson/rag-pgvector:1',
    'The same for stores with the engine `pgvector`',
  ),
  KEELSON_RUNNER_IMAGE: image(
    'keelson/runner:1',
    'The image of the runners of AI workflows (`images/runner`), built by `script/images`',
  ),
  KEELSON_TOOLS_IMAGE: image(
    'node:24-slim',
    'The image of the microVMs in which MCP servers of stdio run, if their tools name none: with `sh`, `env` and what their commands need',
  ),
  KEELSON_WORKFLOW_BUNDLE: z
    .string()
    .default('.state/build/workflows.js')
    .describe('The built workflow code (`script/build.ts`)'),
})

const gateway = z.object({
  ...common,
  ...metrics(7089),
  ...database,
  ...temporal,
  KEELSON_GATEWAY_HOST: z.string().default('127.0.0.1').describe('The address the gateway listens on'),
  KEELSON_GATEWAY_PORT: port(7088).describe('The port the gateway listens on'),
  KEELSON_GATEWAY_TLS_CERT_FILE: z
    .string()
    .optional()
    .describe(
      'The gateway’s certificate (PEM, with its chain), reloaded when it changes. Without it, the gateway listens only on a loopback address',
    ),
  KEELSON_GATEWAY_TLS_KEY_FILE: z.string().optional().describe('The certificate’s private key (PEM)'),
  KEELSON_GATEWAY_PLAINTEXT: z
    .enum(['true', 'false'])
    .default('false')
    .describe('Lets the gateway listen on any address without TLS: only behind a proxy that ends TLS'),
})

const modelGateway = z.object({
  ...common,
  ...metrics(7093),
  ...mongodb,
  ...storeRoom,
  ...outbound,
  ...embedders,
  KEELSON_EMBEDDER_THREADS: z.coerce
    .number()
    .int()
    .min(1)
    .max(64)
    .default(2)
    .describe(
      'Threads that each of these models may use, on each replica of the model gateway; each takes some 270 MiB for the platform’s own model, once it is called',
    ),
  KEELSON_MODELS_HOST: z.string().default('127.0.0.1').describe('The address the model gateway listens on'),
  KEELSON_MODELS_PORT: port(7092).describe('The port the model gateway listens on'),
  KEELSON_MODELS_TLS_CERT_FILE: z
    .string()
    .optional()
    .describe(
      'The model gateway’s certificate (PEM, with its chain), reloaded when it changes. Without it, it listens only on a loopback address',
    ),
  KEELSON_MODELS_TLS_KEY_FILE: z.string().optional().describe('The certificate’s private key (PEM)'),
  KEELSON_MODELS_PLAINTEXT: z
    .enum(['true', 'false'])
    .default('false')
    .describe('Lets the model gateway listen on any address without TLS: only behind a proxy that ends TLS'),
  KEELSON_MODELS_PER_CONNECTOR: z.coerce
    .number()
    .int()
    .positive()
    .default(100)
    .describe('Calls of one connector that may be under way at once, on each replica of the model gateway'),
  KEELSON_MODELS_BODY_MIB: z.coerce
    .number()
    .positive()
    .max(256)
    .default(32)
    .describe('The largest body of a call to a model'),
  KEELSON_MODELS_CALL_SEC: z.coerce
    .number()
    .positive()
    .max(3_600)
    .default(900)
    .describe('How long a call to a model may take'),
  KEELSON_MODELS_QUIET_SEC: z.coerce
    .number()
    .positive()
    .max(3_600)
    .default(180)
    .describe('How long a model may take to begin a stream, and between its pieces'),
  KEELSON_MODELS_PRICES_FILE: z
    .string()
    .optional()
    .describe(
      'The operator’s own prices of models (JSON), which stand above those that come with the platform: docs/model-gateway.md',
    ),
})

const host = z.object({
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
      'Ports of that range which no instance gets, as `27017` or `27000-27100`, comma separated; the platform’s own are reserved without it',
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
    .describe('The folder with their sockets: a short path that is empty after a boot'),
  KEELSON_HOST_LOAD_BALANCERS: z
    .string()
    .default('.state/host/load-balancers')
    .describe('The folder with the host’s load balancers; hosts cannot share one'),
  KEELSON_HOST_LOAD_BALANCERS_RUN: z
    .string()
    .default('/run/keelson/lb')
    .describe('The folder with their sockets: a path of at most 37 bytes that is empty after a boot'),
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
    .describe('Where the host’s own network for containers takes its addresses: a free /22'),
  KEELSON_CONTAINER_IO_MIB: z.coerce
    .number()
    .int()
    .nonnegative()
    .default(256)
    .describe(
      'What each container may read, and write, in MiB a second on the disk with the engine’s files, and each machine and each of its disks on theirs; 0: unlimited',
    ),
  KEELSON_CONTAINER_IOPS: z.coerce
    .number()
    .int()
    .positive()
    .default(8_192)
    .describe('The same in operations a second'),
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
      'Space that images leave free on the disk with the engine’s files, and on that with the machines’: below it, unused ones go, the longest unused first, and no others come',
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
      'Whether deploy servers may have machines on this host that are VMs: where KVM works, `always` also without (ten times slower), or `never`',
    ),
  KEELSON_ARCHIVE_EVERY_SEC: z.coerce
    .number()
    .positive()
    .default(60)
    .describe(
      'Seconds after which the host archives what databases with point-in-time recovery have written: so much can be lost with a machine',
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
      'How VPCs pass the network between hosts: in a tunnel, or `none`: the operator vouches that only hosts can read and send there; the same on all hosts',
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

const setup = z.object({
  ...common,
  ...mongodb,
  ...temporal,
  KEELSON_OWNER_EMAIL: z
    .email()
    .default('owner@example.com')
    .describe('The first owner’s e-mail address; the owner is created if there is no tenant yet'),
  KEELSON_OWNER_PASSWORD: z
    .string()
    .min(12)
    .optional()
    .describe('The first owner’s password; without it, one is generated and printed once'),
  KEELSON_AUDIT_DAYS: z.coerce
    .number()
    .int()
    .positive()
    .max(20_000)
    .default(400)
    .describe('Days to keep audit events; applied when `script/server` starts'),
  KEELSON_ACTIVITY_DAYS: z.coerce
    .number()
    .int()
    .positive()
    .max(20_000)
    .default(400)
    .describe('Days to keep entries of activity feeds; applied when `script/server` starts'),
  KEELSON_HOST_NAME: host.shape.KEELSON_HOST_NAME,
  KEELSON_FURTHER_HOST_NAMES: commaSeparated.describe(
    'Names of further hosts to register; set by `script/server --hosts`',
  ),
})

/** The platform sets all of them. A runner has no other way out than its door. */
const runner = z.object({
  ...common,
  ...namespace,
  KEELSON_GATEWAY_URL: host.shape.KEELSON_GATEWAY_URL,
  KEELSON_RUNNER_ID: z.string().describe('The id of a runner of an AI workflow'),
  KEELSON_RUNNER_KEY: z.string().describe('Its private key (a JSON Web Key, Ed25519)'),
  KEELSON_RUNNER_DOOR: z
    .string()
    .default('/run/keelson/door.sock')
    .describe('The socket by which it reaches the gateway and its part of the internal API'),
})

/** The settings of each role. */
export const roleSettings = { api, worker, gateway, 'model-gateway': modelGateway, host, runner, setup }
export type Role = keyof typeof roleSettings
export type Settings<R extends Role> = z.infer<(typeof roleSettings)[R]>

/**
 * Reads the environment for one role. An empty variable counts as unset, because a compose file cannot leave one out.
 * Throws an error that lists every wrong setting.
 */
export function readSettings<R extends Role>(role: R): Settings<R> {
  const set = Object.fromEntries(Object.entries(process.env).filter(([, value]) => value !== ''))
  const read = roleSettings[role].safeParse(set)
  if (!read.success) throw new Error(`settings are wrong:\n${z.prettifyError(read.error)}`)
  return read.data as Settings<R>
}

/** The folder in which script/server keeps all its files. */
export const stateFolder = (): string => process.env['KEELSON_STATE'] ?? '.state'
