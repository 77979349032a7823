import { z } from 'zod'
import {
  appsDomain,
  blobs,
  builds,
  commaSeparated,
  common,
  databases,
  images,
  lines,
  metrics,
  modelGatewayUrl,
  mongodb,
  outbound,
  port,
  providers,
  storeRoom,
  temporal,
} from './shared.ts'

export const api = z.object({
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
      'The kinds of machines for new deploy servers, comma separated, the preferred first; a new machine gets the first kind that a host may run; without it, `vm,container`',
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
