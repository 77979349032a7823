import { z } from 'zod'
import {
  common,
  database,
  embedders,
  metrics,
  mongodb,
  outbound,
  port,
  storeRoom,
  temporal,
} from './shared.ts'

export const gateway = z.object({
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
    .describe('Lets the gateway listen on any address without TLS: only behind a proxy that terminates TLS'),
})

export const modelGateway = z.object({
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
      'Threads that each model in KEELSON_EMBEDDERS may use, on each replica of the model gateway; each thread takes some 270 MiB for the platform’s own model, once it is called',
    ),
  KEELSON_MODELS_HOST: z.string().default('127.0.0.1').describe('The address the model gateway listens on'),
  KEELSON_MODELS_PORT: port(7092).describe('The port the model gateway listens on'),
  KEELSON_MODELS_TLS_CERT_FILE: z
    .string()
    .optional()
    .describe(
      'The model gateway’s certificate (PEM, with its chain), reloaded when it changes. Without it, the model gateway listens only on a loopback address',
    ),
  KEELSON_MODELS_TLS_KEY_FILE: z.string().optional().describe('The certificate’s private key (PEM)'),
  KEELSON_MODELS_PLAINTEXT: z
    .enum(['true', 'false'])
    .default('false')
    .describe(
      'Lets the model gateway listen on any address without TLS: only behind a proxy that terminates TLS',
    ),
  KEELSON_MODELS_PER_CONNECTOR: z.coerce
    .number()
    .int()
    .positive()
    .default(100)
    .describe('Calls of one connector that may be in progress at once, on each replica of the model gateway'),
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
      'The operator’s own prices of models (JSON), which take precedence over those that come with the platform: docs/model-gateway.md',
    ),
})
