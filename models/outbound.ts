import type { Outbound } from '../lib/outbound.ts'

// The way of this process to URLs that tenants give. A role sets it once.

type Way = Pick<Outbound, 'fetch' | 'faultOf' | 'isExempt' | 'connector'>
let way: Way | undefined

/** Call before anything that asks a tenant's URL. */
export function useOutbound(guard: Way): void {
  way = guard
}

export function outbound(): Way {
  if (!way) throw new Error('useOutbound was not called')
  return way
}

/** The faults of a URL, in words for the tenant. */
export const urlFaults = {
  address_not_allowed: 'it is not a public address',
  not_a_url: 'it is not an http or https URL without a user and password',
}
