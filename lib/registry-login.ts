import { z } from 'zod'

/**
 * From the API to a host: the tenant's login at the registry of an instance's image; null without one. `version` is another
 * one after each change of the login.
 */
export const RegistryLoginOnHost = z.strictObject({
  login: z.strictObject({ username: z.string(), password: z.string(), version: z.string() }).nullable(),
})
export type RegistryLogin = NonNullable<z.infer<typeof RegistryLoginOnHost>['login']>
