import { z } from 'zod'

// Settings that several roles have, or whose group is a thing of its own.

export const port = (fallback: number) => z.coerce.number().int().min(0).max(65535).default(fallback)

export const commaSeparated = z
  .string()
  .default('')
  .transform((text) => text.split(',').flatMap((part) => part.trim() || []))

export const common = {
  KEELSON_LOG_LEVEL: z
    .enum(['trace', 'debug', 'info', 'warn', 'error'])
    .default('info')
    .describe('The lowest level that is logged'),
}

/** Each role has a different default port, so that all roles can run on one machine. */
export const metrics = (metricsPort: number) => ({
  KEELSON_METRICS_ADDRESS: z
    .string()
    .default('127.0.0.1')
    .describe('The address that serves `/metrics` for Prometheus; it has no login'),
  KEELSON_METRICS_PORT: port(metricsPort).describe(
    'The port of `/metrics`; the worker’s default is 7086, the host’s 7087, the gateway’s 7089, the model gateway’s 7093; 0 takes a free port',
  ),
})
export const temporalMetrics = {
  KEELSON_TEMPORAL_METRICS_ADDRESS: z
    .string()
    .regex(/^[^:]+:\d+$/)
    .optional()
    .describe('`address:port` that serves the Temporal SDK’s own metrics; without it they are off'),
}

export const database = {
  KEELSON_MONGODB_URL: z
    .string()
    .default('mongodb://127.0.0.1:27080/keelson?replicaSet=rs0')
    .describe('MongoDB’s URL; transactions need a replica set; writes use w=majority, journaled'),
}

export const mongodb = {
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

export const blobs = {
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

export const storeRoom = {
  KEELSON_STORE_FREE_GIB: z.coerce
    .number()
    .nonnegative()
    .default(5)
    .describe(
      'Free space to keep on MongoDB’s disk, in GiB. With less, output, artifacts and backups in GridFS are refused, and models’ answers are not kept. With less than 5 % of the disk as well, no new work is accepted. 0: no such limits',
    ),
}

export const namespace = {
  KEELSON_TEMPORAL_NAMESPACE: z.string().default('keelson').describe('The Temporal namespace'),
}

export const temporal = {
  KEELSON_TEMPORAL_ADDRESS: z.string().default('127.0.0.1:7233').describe('Temporal’s gRPC address'),
  KEELSON_TEMPORAL_TLS: z
    .enum(['true', 'false'])
    .optional()
    .describe(
      'Whether to connect to Temporal with TLS; without it, only if another TLS setting or the API key is given',
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
  KEELSON_TEMPORAL_TLS_KEY_FILE: z.string().optional().describe('The client certificate’s private key (PEM)'),
  KEELSON_TEMPORAL_API_KEY: z.string().optional().describe('The API key for a hosted Temporal'),
  ...namespace,
  KEELSON_CODEC_KEY_FILE: z
    .string()
    .default('.state/codec.key')
    .describe('File with the keys that encrypt Temporal’s payloads, in the format of the master key file'),
}

export const appsDomain = z
  .string()
  .regex(/^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$/)
  .default('localhost')
  .describe(
    'The domain of deploy servers’ applications; every name below it must resolve to their load balancers',
  )

export const outbound = {
  KEELSON_OUTBOUND_ALLOWED: commaSeparated.describe(
    'Private targets that tenants’ webhooks, backups, connectors, tools and workflows may reach, as the exact `host:port` of their URLs, comma separated; without it, only public addresses',
  ),
}

const providerUrl = (title: string, fallback: string) =>
  z
    .url({ protocol: /^https?$/ })
    .default(fallback)
    .describe(`The URL of ${title}, for tenants’ connectors`)
const clientId = (title: string) =>
  z
    .string()
    .optional()
    .describe(`The id of the platform’s OAuth client at ${title}; without it tenants cannot log in there`)
const clientSecret = (title: string) =>
  z.string().optional().describe(`The secret of the platform’s OAuth client at ${title}, if it has one`)

/** Of the providers of connectors. A private place also needs KEELSON_OUTBOUND_ALLOWED. */
export const providers = {
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
    .describe('The URL of Gitea, for tenants’ connectors; without it, each tenant gives its own'),
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

export const embedders = {
  KEELSON_EMBEDDERS: z
    .string()
    .default('.state/tools/embedder')
    .transform((text) => text.split(',').flatMap((part) => part.trim() || []))
    .describe(
      'Folders with models that embed texts on the platform itself, comma separated; of two with one name, the first is used: docs/model-gateway.md',
    ),
}

export const modelGatewayUrl = {
  KEELSON_MODELS_URL: z
    .url({ protocol: /^https?$/ })
    .default('http://127.0.0.1:7092')
    .describe(
      'The URL of the model gateway, `https://` for TLS; the platform calls it, and hosts on behalf of runners of AI workflows',
    ),
}

export const privateRegistries = {
  KEELSON_IMAGES_PRIVATE: commaSeparated.describe(
    'Registries at private addresses, or with names that resolve to them, from which tenants’ images may come, as the exact `host:port` in the names of images, comma separated; without it, none',
  ),
}

export const images = {
  KEELSON_IMAGES_ALLOWED: commaSeparated.describe(
    'Registries from which tenants’ images may come, or the beginnings of repositories, such as `docker.io,ghcr.io/team`, comma separated; without it, all public ones',
  ),
  KEELSON_IMAGES_DENIED: commaSeparated.describe(
    'Registries from which tenants’ images may not come, in the same form',
  ),
  ...privateRegistries,
}

const imageName = z.string().regex(/^[\w][\w.\-/:@]{0,254}$/)
export const image = (fallback: string, what: string) => imageName.default(fallback).describe(what)

/** Images for builds on deploy servers. A host copies those that its own engine has into the workers. */
export const builds = {
  KEELSON_REGISTRY_IMAGE: image(
    'registry:2',
    'The image of deploy servers’ registries (CNCF Distribution 2 or 3); `script/images` makes one where no registry answers',
  ),
  KEELSON_BUILD_NODE_IMAGE: image(
    'node:24-slim',
    'The image on which generated Dockerfiles build and run Node',
  ),
  KEELSON_BUILD_PYTHON_IMAGE: image(
    'python:3.13-slim',
    'The image on which generated Dockerfiles build and run Python',
  ),
  KEELSON_BUILD_GO_IMAGE: image('golang:1.25-bookworm', 'The image on which generated Dockerfiles build Go'),
  KEELSON_BUILD_RUN_IMAGE: image(
    'debian:bookworm-slim',
    'The image on which generated Dockerfiles run Go programs',
  ),
  KEELSON_BUILD_COMPOSER_IMAGE: image(
    'composer:2',
    'The image from which generated Dockerfiles take Composer',
  ),
  KEELSON_BUILD_PHP_IMAGE: image(
    'dunglas/frankenphp:1-php8.4',
    'The image on which generated Dockerfiles run PHP (FrankenPHP)',
  ),
  KEELSON_BUILD_STATIC_IMAGE: image(
    'caddy:2-alpine',
    'The image with which generated Dockerfiles serve files (Caddy)',
  ),
  KEELSON_NIXPACKS_IMAGE: imageName
    .optional()
    .describe(
      'An image with the program `nixpacks`, which then writes the Dockerfile of an artifact that has none; without it, the platform writes it',
    ),
  KEELSON_NIXPACKS_BASE_IMAGE: imageName
    .optional()
    .describe(
      'The image on which Nixpacks’ Dockerfiles build and run; without it, the one that Nixpacks names',
    ),
}

const databaseImage = (title: string) =>
  z
    .string()
    .regex(/^\w[\w.-]*(:\d+)?(\/\w[\w.-]*)*$/)
    .optional()
    .describe(`The image of ${title} databases without its tag; without it, the public one`)

/** A host copies those that its own engine has into the workers. */
export const databases = {
  KEELSON_DATABASE_POSTGRESQL_IMAGE: databaseImage('PostgreSQL'),
  KEELSON_DATABASE_MYSQL_IMAGE: databaseImage('MySQL'),
  KEELSON_DATABASE_MARIADB_IMAGE: databaseImage('MariaDB'),
  KEELSON_DATABASE_MONGODB_IMAGE: databaseImage('MongoDB'),
  KEELSON_DATABASE_REDIS_IMAGE: databaseImage('Redis'),
  KEELSON_DATABASE_KEYDB_IMAGE: databaseImage('KeyDB'),
  KEELSON_DATABASE_DRAGONFLY_IMAGE: databaseImage('Dragonfly'),
  KEELSON_DATABASE_CLICKHOUSE_IMAGE: databaseImage('ClickHouse'),
}

export const lines = {
  KEELSON_OPERATIONS_AT_ONCE: z.coerce
    .number()
    .int()
    .min(1)
    .max(10_000)
    .default(16)
    .describe(
      'How many operations of one tenant, with one verb on one kind of instance, run at once; the others wait as `pending`',
    ),
}
