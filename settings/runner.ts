import { z } from 'zod'
import { host } from './host.ts'
import { common, namespace } from './shared.ts'

/** The platform sets all of them. A runner has no other way out than its door. */
export const runner = z.object({
  ...common,
  ...namespace,
  KEELSON_GATEWAY_URL: host.shape.KEELSON_GATEWAY_URL,
  KEELSON_RUNNER_ID: z.string().describe('The id of a runner of an AI workflow'),
  KEELSON_RUNNER_KEY: z.string().describe('The runner’s private key (a JSON Web Key, Ed25519)'),
  KEELSON_RUNNER_DOOR: z
    .string()
    .default('/run/keelson/door.sock')
    .describe('The socket by which the runner reaches the gateway and its part of the internal API'),
})
