import { z } from 'zod'
import { registryNamed } from '../../lib/image-policy.ts'
import {
  deleteRegistryCredential,
  keepRegistryCredential,
  RegistryCredential,
  registryCredentialOf,
  type RegistryCredentialDocument,
} from '../../models/compute/registry-credentials.ts'
import { byId, Id, PlainText, Timestamp, time } from '../fields.ts'
import { list } from '../list.ts'
import { inArea, operation } from '../operation.ts'

// A tenant's logins at registries, by which hosts pull its private images.

const registryWords =
  'The registry, as in the names of its images: `host` or `host:port`; `docker.io` for Docker Hub'

const Registry = z
  .string()
  .max(255)
  .toLowerCase()
  .regex(
    /^(?=.*[.:]|localhost$)[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?(?::\d{1,5})?$/,
    'must be a registry: a host name with a dot, or host:port',
  )
  .transform(registryNamed)
  .describe(registryWords)

const RegistryCredentialView = z
  .strictObject({
    id: Id,
    tenant_id: Id,
    registry: z.string().describe(registryWords),
    username: z.string(),
    password_hint: z
      .string()
      .nullable()
      .describe('The last four characters of the password; null if it has fewer than 16'),
    created_at: Timestamp,
    updated_at: Timestamp,
  })
  .meta({ id: 'RegistryCredential' })

const toView = (credential: RegistryCredentialDocument): z.output<typeof RegistryCredentialView> => ({
  id: credential._id,
  tenant_id: credential.tenant_id,
  registry: credential.registry,
  username: credential.username,
  password_hint: credential.password_hint,
  created_at: time(credential.created_at),
  updated_at: time(credential.updated_at),
})

const path = '/api/v1/registry-credentials'

export const registryCredentials = inArea('Containers', [
  list({
    path,
    permission: 'registry_credentials:read',
    summary: 'List the registries for which the tenant has credentials',
    model: RegistryCredential,
    view: RegistryCredentialView,
    toView,
    scope: ({ tenant_id }) => ({ tenant_id }),
  }),

  operation({
    method: 'POST',
    path,
    permission: 'registry_credentials:create',
    summary: 'Add credentials for a registry, or replace the existing ones',
    body: z.strictObject({
      registry: Registry,
      username: PlainText.min(1)
        .max(255)
        .refine((name) => !name.includes(':'), 'must have no colon'),
      password: z
        .string()
        .min(1)
        .max(8192)
        .describe('The password, or a token that may pull; it is never shown again'),
    }),
    example: { registry: 'registry.example.com', username: 'shop', password: 'a-token-that-may-pull' },
    responses: { 200: RegistryCredentialView, 201: RegistryCredentialView },
    handle: async ({ caller, body }) => {
      const { credential, isNew } = await keepRegistryCredential(caller.tenant_id, body)
      const view = toView(credential)
      return isNew ? { location: `${path}/${credential._id}`, body: view } : view
    },
  }),

  operation({
    method: 'GET',
    path: `${path}/{id}`,
    permission: 'registry_credentials:read',
    summary: 'Get the credentials for a registry, without the password',
    params: byId,
    responses: { 200: RegistryCredentialView },
    handle: async ({ caller, params }) => toView(await registryCredentialOf(caller.tenant_id, params.id)),
  }),

  operation({
    method: 'DELETE',
    path: `${path}/{id}`,
    permission: 'registry_credentials:delete',
    summary: 'Delete the credentials for a registry',
    params: byId,
    responses: { 204: null },
    handle: async ({ caller, params }) => deleteRegistryCredential(caller.tenant_id, params.id),
  }),
])
