import { makeOutbound } from '../../../lib/outbound.ts'
import { type ProviderSettings, useProviders } from '../../../models/connectors/providers.ts'
import { useOutbound } from '../../../models/outbound.ts'
import { outboundAllowed, providerSettings } from '../stack.ts'

/** Has this process know where providers are, and reach them, as the roles of the stack do. */
export function knowProviders(
  settings: ProviderSettings = providerSettings,
  allowed: string[] = outboundAllowed,
): void {
  useOutbound(makeOutbound({ allowed }))
  useProviders(settings)
}
