import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  type ModelGateway,
  openModelGateway,
  type ModelGatewaySettings,
} from '../../gateway/models/server.ts'
import { newId } from '../../lib/ids.ts'
import { makeLogger } from '../../lib/log.ts'
import type { ProviderName } from '../../models/connectors/catalogue.ts'
import { Connector } from '../../models/connectors/connectors.ts'
import { sealCredential } from '../../models/connectors/credentials.ts'
import { LlmCall, type CallDocument } from '../../models/llm/calls.ts'
import type { Budget } from '../../models/llm/ledgers.ts'
import { makePrices } from '../../models/llm/prices.ts'
import type { Purpose } from '../../models/llm/purposes.ts'
import { type Fallback, issueToken } from '../../models/llm/tokens.ts'
import { embedderFolder } from './embedder.ts'
import { eventually } from './eventually.ts'
import { isReady, onFreePort } from './own-api.ts'
import { layout, stackSettings } from './stack.ts'

/** Settings of a model gateway for a provider at this port. */
export const gatewaySettings = (
  providerPorts: number[],
  more: Partial<ModelGatewaySettings> = {},
): ModelGatewaySettings => ({
  KEELSON_MODELS_HOST: '127.0.0.1',
  KEELSON_MODELS_PORT: 0,
  KEELSON_MODELS_TLS_CERT_FILE: undefined,
  KEELSON_MODELS_TLS_KEY_FILE: undefined,
  KEELSON_MODELS_PLAINTEXT: 'false',
  KEELSON_MODELS_PER_CONNECTOR: 1_000,
  KEELSON_MODELS_BODY_MIB: 1,
  KEELSON_MODELS_CALL_SEC: 120,
  KEELSON_MODELS_QUIET_SEC: 60,
  KEELSON_MODELS_PRICES_FILE: undefined,
  KEELSON_EMBEDDERS: [embedderFolder],
  KEELSON_EMBEDDER_THREADS: 1,
  KEELSON_OUTBOUND_ALLOWED: providerPorts.map((port) => `127.0.0.1:${port}`),
  ...more,
})

/** A model gateway in this process, on the stack's database. */
export const openGateway = (
  providerPorts: number[],
  more: Partial<ModelGatewaySettings> = {},
): Promise<ModelGateway> =>
  openModelGateway(
    gatewaySettings(providerPorts, more),
    makePrices(null),
    makeLogger('model-gateway', 'fatal'),
  )

/** A model gateway as a process of its own, which a test can kill. */
export const startGateway = (settings: Record<string, string>) =>
  onFreePort((port) => startGatewayAt(port, settings))

async function startGatewayAt(port: number, settings: Record<string, string>) {
  const env = {
    ...stackSettings(),
    KEELSON_MODELS_PORT: String(port),
    KEELSON_METRICS_PORT: '0',
    KEELSON_LOG_LEVEL: 'trace',
    ...settings,
  }
  const child: ChildProcess = spawn(process.execPath, ['gateway/models/main.ts'], {
    env,
    cwd: layout.repository,
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let log = ''
  for (const output of [child.stdout, child.stderr])
    output?.on('data', (chunk: Buffer) => (log += chunk.toString()))
  const hasEnded = () => child.exitCode !== null || child.signalCode !== null
  await eventually(() => hasEnded() || isReady(log))
  const end = async (signal: 'SIGTERM' | 'SIGKILL') => {
    child.kill(signal)
    if (!hasEnded()) await once(child, 'exit')
  }
  return { port, hasEnded, log: () => log, stop: () => end('SIGTERM'), kill: () => end('SIGKILL') }
}

/** A key that is found if it gets into a log or an answer. */
export const providerKey = 'sk-test-0123456789-never-shown'

/** A connector of a tenant to a provider, made in the database. */
export async function makeConnector(
  tenant_id: string,
  base_url: string,
  provider: ProviderName = 'openai',
): Promise<string> {
  const of = { _id: newId(), tenant_id, version: 1 }
  const secret = { token: providerKey, refresh_token: null, client_secret: null }
  await new Connector({
    ...of,
    name: of._id,
    provider,
    kind: 'api_key',
    base_url,
    status: 'active',
    secret_sealed: await sealCredential(of, secret),
  }).save()
  return of._id
}

export interface Caller {
  token: string
  purpose: Purpose
  connector_id: string | null
  /** The records of its calls that are settled, once there are so many. */
  calls(count?: number): Promise<CallDocument[]>
}

/** One who calls models with a token, as an agent's sandbox does. */
export async function makeCaller(
  tenant_id: string,
  connector_id: string | null,
  {
    budget = null,
    fallbacks = [],
    purpose = { kind: 'session', id: newId() },
  }: { budget?: Budget | number | null; fallbacks?: Fallback[]; purpose?: Purpose } = {},
): Promise<Caller> {
  const { token } = await issueToken({ tenant_id, purpose, connector_id, fallbacks }, budget)
  return {
    token,
    purpose,
    connector_id,
    calls: (count = 1) =>
      eventually(async () => {
        const filter = { tenant_id, purpose_id: purpose.id, settled: true }
        const found = await LlmCall.find(filter).sort({ _id: 1 }).lean()
        return found.length >= count && found
      }),
  }
}
