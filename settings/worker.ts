import { z } from 'zod'
import {
  appsDomain,
  blobs,
  common,
  embedders,
  image,
  lines,
  metrics,
  modelGatewayUrl,
  mongodb,
  outbound,
  providers,
  temporal,
  temporalMetrics,
} from './shared.ts'

export const worker = z.object({
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
      'How many steps of uploaded documents each worker runs at once; at most two of these read a document, which may take 1 GiB of memory',
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
    .describe('The largest archived output of a container, in MiB as stored; the oldest goes first'),
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
    .describe('How often the platform refreshes connectors’ tokens that expire soon'),
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
    'The image of stores with the engine `pgvector`, built by `script/images --pgvector`',
  ),
  KEELSON_RUNNER_IMAGE: image(
    'keelson/runner:1',
    'The image of the runners of AI workflows (`images/runner`), built by `script/images`',
  ),
  KEELSON_TOOLS_IMAGE: image(
    'node:24-slim',
    'The image of the microVMs in which stdio MCP servers run, if their tools name none; it needs `sh`, `env` and what their commands use',
  ),
  KEELSON_WORKFLOW_BUNDLE: z
    .string()
    .default('.state/build/workflows.js')
    .describe('The built workflow code (`script/build.ts`)'),
})
