import { z } from 'zod'
import { host } from './host.ts'
import { commaSeparated, common, mongodb, temporal } from './shared.ts'

export const setup = z.object({
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
