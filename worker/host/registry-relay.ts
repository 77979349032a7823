import type { IncomingMessage, ServerResponse } from 'node:http'
import { pipeline } from 'node:stream/promises'
import type { MachineRegistries, RegistryRequest, RegistrySpec } from '../../drivers/image-builds.ts'
import { readRest } from '../../lib/early-answers.ts'
import { relayed } from '../../lib/registry-relay.ts'

// The registries of deploy servers, for the API: it passes on what comes from outside, with the login of the platform.

interface Parts {
  registries: Pick<MachineRegistries, 'ensure' | 'relay'>
  registry: (deployServerId: string) => Promise<RegistrySpec>
}

export type RegistryRelay = ReturnType<typeof makeRegistryRelay>

/** A push is many requests: not each looks whether the registry runs. */
const believedMs = 30_000

export function makeRegistryRelay({ registries, registry }: Parts) {
  const running = new Map<string, { spec: Promise<RegistrySpec>; until: number }>()

  async function ensured(machineId: string, deployServerId: string): Promise<RegistrySpec> {
    const spec = await registry(deployServerId)
    await registries.ensure(machineId, spec)
    return spec
  }

  function specOf(machineId: string, deployServerId: string): Promise<RegistrySpec> {
    const known = running.get(machineId)
    if (known && known.until > Date.now()) return known.spec
    const spec = ensured(machineId, deployServerId)
    running.set(machineId, { spec, until: Date.now() + believedMs })
    spec.catch(() => running.delete(machineId))
    return spec
  }

  /** Throws EngineUnavailable. */
  return async (
    { machineId, deployServerId }: { machineId: string; deployServerId: string },
    { path, pushes }: Pick<RegistryRequest, 'path' | 'pushes'>,
    request: IncomingMessage,
    response: ServerResponse,
  ): Promise<void> => {
    const gone = new AbortController()
    response.once('close', () => gone.abort())
    const spec = await specOf(machineId, deployServerId)
    const method = request.method ?? 'GET'
    const headers = relayed.request(request.headers)
    try {
      const from = { method, path, headers, body: request, signal: gone.signal, pushes }
      const answer = await registries.relay(machineId, spec, from)
      response.writeHead(answer.statusCode ?? 502, relayed.response(answer.headers))
      await pipeline(answer, response, { end: false })
      await readRest(request)
      response.end()
    } catch (error) {
      running.delete(machineId)
      throw error
    }
  }
}
