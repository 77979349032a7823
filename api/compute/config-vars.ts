import { z } from 'zod'
import { setConfigVars } from '../../models/compute/instances.ts'
import { attachedVars, ownVarsIn } from '../../models/deploy/attachments.ts'
import { mine } from '../../models/resources.ts'
import { byId } from '../fields.ts'
import { type Caller, type Operation, operation } from '../operation.ts'
import { ConfigVarName, ConfigVars, type ShownInstance } from './instances.ts'

const ShownVars = z
  .record(ConfigVarName, z.string().nullable())
  .describe('Values by name; null: the caller may not see the value')
const ConfigVarsView = z.strictObject({ config_vars: ShownVars }).meta({ id: 'ConfigVars' })

/**
 * Which values a caller sees. Who may only read sees the names. `update` shows the instance's own values, which it could
 * replace. The URL of an attached database has a password that the caller has not chosen: only `secrets` shows it.
 */
function visible(
  { permissions }: Caller,
  plural: 'containers' | 'microvms' | 'vms',
  vars: { own: Record<string, string>; attached: Record<string, string> },
): Record<string, string | null> {
  const maySeeSecrets = permissions.has(`${plural}:secrets`)
  const maySeeOwn = maySeeSecrets || permissions.has(`${plural}:update`)
  return { ...shownIf(maySeeOwn, vars.own), ...shownIf(maySeeSecrets, vars.attached) }
}
const shownIf = (may: boolean, vars: Record<string, string>): Record<string, string | null> =>
  Object.fromEntries(Object.entries(vars).map(([name, value]) => [name, may ? value : null]))

/** An instance's environment variables. Its view omits them, since they hold secrets. */
export const configVars = (shown: ShownInstance, { plural, kind, kind: { title } } = shown): Operation[] => [
  operation({
    method: 'GET',
    path: `/api/v1/${plural}/{id}/config-vars`,
    permission: `${plural}:read`,
    summary: `Get a ${title}’s config vars; their values need \`${plural}:secrets\`, or \`${plural}:update\` for all but databases’ URLs (audited)`,
    params: byId,
    responses: { 200: ConfigVarsView },
    reads_secret: true,
    handle: async ({ caller, params }) => {
      const instance = await mine(kind.resource, caller, params.id)
      const own = await kind.openConfigVars(instance)
      return { config_vars: visible(caller, plural, { own, attached: await attachedVars(instance) }) }
    },
  }),

  operation({
    method: 'PUT',
    path: `/api/v1/${plural}/{id}/config-vars`,
    permission: `${plural}:update`,
    summary: `Replace all config vars except those of attached databases; a running ${title} gets them at its next start`,
    params: byId,
    body: z.strictObject({ config_vars: ConfigVars }),
    responses: {
      200: z.strictObject({
        config_vars: ShownVars,
        needs_restart: z
          .boolean()
          .describe(`Whether the ${title} keeps the previous values until it is stopped and started`),
      }),
    },
    handle: async ({ caller, params, body }) => {
      const instance = await mine(kind.resource, caller, params.id)
      const own = await ownVarsIn(instance, body.config_vars)
      const needs_restart = await setConfigVars(kind, instance, own)
      const attached = await attachedVars(instance)
      return { config_vars: visible(caller, plural, { own, attached }), needs_restart }
    },
  }),
]
