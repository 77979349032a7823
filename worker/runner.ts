import { importJWK } from 'jose'
import { makeNodesOnRunner } from '../activities/runner/nodes.ts'
import { ExpressionPool } from '../lib/ai/expression-pool.ts'
import type { Plan } from '../lib/ai/plan.ts'
import type { Spec } from '../lib/ai/spec.ts'
import { readSettings } from '../config.ts'
import { makeLogger } from '../lib/log.ts'
import { RunnerKey } from '../lib/runner-protocol.ts'
import { gatewayAt, keepWorking } from './queue-work.ts'
import { untilItWorks } from './retry.ts'
import { PlatformFault } from './platform-fault.ts'
import { makeModelCaller, makeRunnerApi, openPort } from './runner/door.ts'
import { rememberGrants } from './runner/grants.ts'
import { makeTokenSender } from './runner/token-sender.ts'
import { installTemporalRuntime } from './temporal-runtime.ts'

// The runner of one version of an AI workflow: runs the nodes of its runs, in a container of the tenant's without a network.
// The key in its environment is its only credential, and its door its only way out.

const settings = readSettings('runner')
const log = makeLogger('runner', settings.KEELSON_LOG_LEVEL)
installTemporalRuntime(log, {})

const stopping = new AbortController()
const { signal } = stopping
for (const name of ['SIGTERM', 'SIGINT'] as const) process.once(name, () => stopping.abort())

const key = await importJWK(RunnerKey.parse(JSON.parse(settings.KEELSON_RUNNER_KEY)), 'EdDSA')
// Nothing that it starts gets the key.
delete process.env['KEELSON_RUNNER_KEY']
const credential = { party: { kind: 'runner', id: settings.KEELSON_RUNNER_ID } as const, key }

const api = makeRunnerApi(settings.KEELSON_RUNNER_DOOR, credential)
const { workflow_id, version, spec_sha256, spec, plan } = await untilItWorks(
  'reading the workflow',
  api.spec,
  {
    signal,
    log,
    hopeless: (error) => error instanceof PlatformFault && error.permanent,
  },
)
// One process: a second one would take the memory that values need.
const pool = new ExpressionPool(1)
const port = await openPort(settings.KEELSON_RUNNER_DOOR)

await keepWorking(
  {
    credential,
    // Its host speaks TLS to the gateway.
    gateway: () => ({
      ...gatewayAt(settings.KEELSON_GATEWAY_URL, undefined),
      tls: false,
      proxy: { type: 'http-connect', targetHost: port },
    }),
    namespace: settings.KEELSON_TEMPORAL_NAMESPACE,
    codecKeys: api.codecKeys,
    activities: makeNodesOnRunner({
      api: { ...api, modelGrant: rememberGrants(api.modelGrant) },
      callModel: makeModelCaller(settings.KEELSON_RUNNER_DOOR),
      tokens: makeTokenSender(api.giveTokens),
      pool,
      spec: spec as unknown as Spec,
      plan: plan as unknown as Plan,
      key: spec_sha256,
    }),
    // The gateway has limits for each runner (gateway/callers.ts).
    slots: { maxConcurrentActivityTaskExecutions: 32, maxConcurrentActivityTaskPolls: 4 },
    onStarted: () => log.info({ runner_id: credential.party.id, workflow_id, version }, 'ready'),
    log,
  },
  signal,
)
await pool.close()
log.info('stopped')
process.exit()
