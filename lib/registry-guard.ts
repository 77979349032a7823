import { lookup as resolve } from 'node:dns/promises'
import { isIP } from 'node:net'
import { dockerHub, isPrivate, registryOf } from './image-policy.ts'
import { isPublic } from './outbound.ts'

/** Whether an engine may ask the registry of a reference, by the addresses that its name has now. */
export type RegistryGuard = (reference: string) => Promise<boolean>

type Lookup = (name: string) => Promise<{ address: string }[]>

// The resolver gives up by itself, after longer if its servers are silent.
const lookupMs = 10_000

/**
 * On a host, before its engine asks a registry: a public name may lead to a private address. `private`: the registries
 * at private addresses that an operator allows, as the exact `host:port` of references.
 *
 * The engine looks the name up again, and follows where the registry sends it. A name that leads elsewhere the second
 * time is therefore stopped only by a filter of the engine's network.
 */
export function makeRegistryGuard({
  private: exempt,
  lookup = (name) => resolve(name, { all: true }),
  withinMs = lookupMs,
}: {
  private: string[]
  lookup?: Lookup
  withinMs?: number
}): RegistryGuard {
  const exempted = new Set(exempt.map((target) => target.toLowerCase()))
  return async (reference) => {
    const registry = registryOf(reference)
    // Where Docker Hub is, with mirrors of it, is the engine's own configuration. No tenant can change it.
    if (registry === dockerHub || exempted.has(registry)) return true
    if (isPrivate(registry)) return false
    const { hostname = '' } = URL.parse(`http://${registry}`) ?? {}
    if (isIP(hostname) !== 0) return true
    // A name that this host does not know leads nowhere for its engine, unless that has a proxy, which looks it up.
    const addresses = await Promise.race([lookup(hostname).catch(() => []), late(withinMs)])
    // All of them: a public one beside a private one is an attempt.
    return addresses !== null && addresses.every(({ address }) => isPublic(address))
  }
}

const late = (ms: number): Promise<null> =>
  new Promise((settle) => void setTimeout(() => settle(null), ms).unref())
