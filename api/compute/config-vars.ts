import { z } from 'zod'
import { setConfigVars } from '../../models/compute/instances.ts'
import { attachedVars, ownVarsIn } from '../../models/deploy/attachments.ts'
import { mine } from '../../models/resources.ts'
import { byId } from '../fields.ts'
import { type Operation, operation } from '../operation.ts'
import { ConfigVars, type ShownInstance } from './instances.ts'

const ConfigVarsView = z.strictObject({ config_vars: ConfigVars }).meta({ id: 'ConfigVars' })

// The URL of an attached database lets whoever has it in: it is shown to those who could attach the database.

/** An instance's environment variables. Its view omits them, since they hold secrets. */
export const configVars = (shown: ShownInstance, { plural, kind, kind: { title } } = shown): Operation[] => [
  operation({
    method: 'GET',
    path: `/api/v1/${plural}/{id}/config-vars`,
    permission: `${plural}:read`,
    summary: `Get a ${title}’s config vars (audited)`,
    params: byId,
    responses: { 200: ConfigVarsView },
    reads_secret: true,
    handle: async ({ caller, params }) => {
      const instance = await mine(kind.resource, caller, params.id)
      const own = await kind.openConfigVars(instance)
      const maySeeAll = caller.permissions.has(`${plural}:update`)
      return { config_vars: maySeeAll ? { ...own, ...(await attachedVars(instance)) } : own }
    },
  }),

  operation({
    method: 'PUT',
    path: `/api/v1/${plural}/{id}/config-vars`,
    permission: `${plural}:update`,
    summary: `Replace all config vars but those of attached databases; a running ${title} gets them at its next start`,
    params: byId,
    body: z.strictObject({ config_vars: ConfigVars }),
    responses: {
      200: z.strictObject({
        config_vars: ConfigVars,
        needs_restart: z
          .boolean()
          .describe(`The ${title} keeps the previous values until it is stopped and started`),
      }),
    },
    handle: async ({ caller, params, body }) => {
      const instance = await mine(kind.resource, caller, params.id)
      const own = await ownVarsIn(instance, body.config_vars)
      const needs_restart = await setConfigVars(kind, instance, own)
      return { config_vars: { ...own, ...(await attachedVars(instance)) }, needs_restart }
    },
  }),
]
