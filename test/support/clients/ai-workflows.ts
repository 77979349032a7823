import { newId } from '../../../lib/ids.ts'
import type { Answer, Json } from './ask.ts'
import { eventually } from '../eventually.ts'
import type { Accepted, Caller } from './caller.ts'

/** The fields of an AI workflow that tests read from the API. */
export interface AiWorkflowBody extends Json {
  id: string
  name: string
  status: string
  revision: number
  spec: Json
  spec_sha256: string
  latest_version: number | null
  latest_sha256: string | null
  require_eval_pass: boolean
  case_set_sha256: string | null
  deployment: DeploymentBody | null
  canary: CanaryBody | null
  former_deployments: DeploymentBody[]
}

export interface DeploymentBody extends Json {
  id: string
  version: number
  status: string
}

export interface CanaryBody extends DeploymentBody {
  weight: number
  bounds: { p95_ratio: number | null; cost_ratio: number | null }
  decision: { verdict: 'hold' | 'back'; reason: string; message: string; at: string | null } | null
}

/** An eval case. */
export interface EvalCaseBody extends Json {
  id: string
  name: string
  input: unknown
  assertion: Json
  repeats: number
  min_pass: number
}

/** What a run of all eval cases came to. */
export interface EvalResultBody extends Json {
  id: string
  deployment_id: string
  verdict: 'passed' | 'failed' | 'inconclusive'
  cases: {
    name: string
    verdict: string
    passes: number
    fails: number
    errors: number
    attempts: { run_id: string | null; outcome: string; reasons: string | null; error: Json | null }[]
  }[]
  tokens: number
}

/** One published version. */
export interface VersionBody extends Json {
  version: number
  spec_sha256: string
  uses: Json[]
  spec: Json
}

/** A run, with the fields that tests read. */
export interface RunBody extends Json {
  id: string
  deployment_id: string
  version: number
  status: 'queued' | 'running' | 'succeeded' | 'failed' | 'cancelled'
  error: { code: string; message: string; node: string | null } | null
  input: unknown
  output: unknown
  output_bytes: number
  retry_of: string | null
  ended_at: string | null
  nodes: RunNodeBody[]
}

export interface RunNodeBody extends Json {
  node: string
  status: 'running' | 'waiting' | 'succeeded' | 'failed' | 'skipped' | 'cancelled'
  attempt: number | null
  case: string | null
  output_bytes: number | null
  input_sha256: string | null
  reused_from: string | null
  error: { code: string; message: string } | null
  asked: { message: string; deadline_at: string } | null
  items: { all: number; ended: number; failed: number } | null
  child_run_id: string | null
}

const path = '/api/v1/workflows'
const ifMatch = (revision?: number): Record<string, string> | undefined =>
  revision === undefined ? undefined : { 'if-match': `"${revision}"` }

/** The AI workflows of a tenant. `revision`: sent as If-Match. */
export function aiWorkflowsOf(caller: Caller) {
  const workflows = {
    create: (fields: Json = {}, headers?: Record<string, string>): Promise<Answer> =>
      caller.ask('POST', path, { name: `workflow-${newId().slice(-12)}`, ...fields }, headers),
    /** Must succeed. */
    async make(spec: object = {}, fields: Json = {}): Promise<AiWorkflowBody> {
      const { status, body } = await workflows.create({ spec, ...fields })
      if (status !== 201) throw new Error(`${status} ${JSON.stringify(body)}`)
      return body as AiWorkflowBody
    },
    get: (id: string) => caller.get<AiWorkflowBody>(`${path}/${id}`),
    list: async (query = '') => (await caller.get<{ items: AiWorkflowBody[] }>(`${path}${query}`)).items,
    change: (id: string, changes: Json, revision?: number): Promise<Answer> =>
      caller.ask('PUT', `${path}/${id}`, changes, ifMatch(revision)),
    delete: (id: string, query = '', revision?: number): Promise<Answer> =>
      caller.ask('DELETE', `${path}/${id}${query}`, undefined, ifMatch(revision)),
    validate: (id: string, body?: Json): Promise<Answer> =>
      caller.ask('POST', `${path}/${id}/validate`, body),
    publish: (id: string, revision?: number): Promise<Answer> =>
      caller.ask('POST', `${path}/${id}/publish`, undefined, ifMatch(revision)),
    /** Makes and publishes one; must succeed. */
    async published(spec: object, fields: Json = {}): Promise<AiWorkflowBody> {
      const { id } = await workflows.make(spec, fields)
      const { status, body } = await workflows.publish(id)
      if (status !== 201) throw new Error(`${status} ${JSON.stringify(body)}`)
      return workflows.get(id)
    },
    askDeploy: (id: string, body?: Json): Promise<Answer> => caller.ask('POST', `${path}/${id}/deploy`, body),
    askUndeploy: (id: string): Promise<Answer> => caller.ask('POST', `${path}/${id}/undeploy`),
    /** The request must be accepted. */
    deploy: (id: string, body?: Json): Promise<Accepted> =>
      caller.begin('POST', `${path}/${id}/deploy`, body),
    undeploy: (id: string): Promise<Accepted> => caller.begin('POST', `${path}/${id}/undeploy`),
    askCanary: (id: string, body: Json): Promise<Answer> => caller.ask('POST', `${path}/${id}/canary`, body),
    askStopCanary: (id: string): Promise<Answer> => caller.ask('DELETE', `${path}/${id}/canary`),
    askPromote: (id: string): Promise<Answer> => caller.ask('POST', `${path}/${id}/canary/promote`),
    /** These requests must be accepted. */
    canary: (id: string, body: Json): Promise<Accepted> => caller.begin('POST', `${path}/${id}/canary`, body),
    stopCanary: (id: string): Promise<Accepted> => caller.begin('DELETE', `${path}/${id}/canary`),
    promote: (id: string): Promise<Accepted> => caller.begin('POST', `${path}/${id}/canary/promote`),
    askRun: (id: string, body: Json = {}, query = '', headers?: Record<string, string>): Promise<Answer> =>
      caller.ask('POST', `${path}/${id}/run${query}`, body, headers),
    /** The run must be accepted. */
    async run(id: string, input: unknown, query = ''): Promise<RunBody> {
      const { status, body } = await workflows.askRun(id, { input }, query)
      if (status !== 201) throw new Error(`${status} ${JSON.stringify(body)}`)
      return body as RunBody
    },
    runs: (id: string, query = '') =>
      caller.get<{ items: RunBody[]; next: string | null }>(`${path}/${id}/runs${query}`),
    getRun: (id: string, run: string) => caller.get<RunBody>(`${path}/${id}/runs/${run}`),
    metrics: (id: string, query = '') => caller.get(`${path}/${id}/metrics${query}`),
    runNode: (id: string, run: string, node: string) =>
      caller.get<RunNodeBody & { output: unknown }>(`${path}/${id}/runs/${run}/nodes/${node}`),
    askCancel: (id: string, run: string): Promise<Answer> =>
      caller.ask('POST', `${path}/${id}/runs/${run}/cancel`),
    askDecision: (id: string, run: string, node: string, body: object): Promise<Answer> =>
      caller.ask('POST', `${path}/${id}/runs/${run}/nodes/${node}/decision`, { ...body }),
    askRetry: (id: string, run: string, headers?: Record<string, string>): Promise<Answer> =>
      caller.ask('POST', `${path}/${id}/runs/${run}/retry`, undefined, headers),
    /** The retry must be accepted. */
    async retry(id: string, run: string): Promise<RunBody> {
      const { status, body } = await workflows.askRetry(id, run)
      if (status !== 201) throw new Error(`${status} ${JSON.stringify(body)}`)
      return body as RunBody
    },
    /** Resolves with the ended run. Asks again while the API is away. */
    endOfRun: (id: string, run: string): Promise<RunBody> =>
      eventually(async () => {
        const answer = await caller.ask('GET', `${path}/${id}/runs/${run}?wait=20`)
        const body = answer.body as RunBody
        if (answer.status !== 200 || body.ended_at === null)
          throw new Error(`${answer.status} ${JSON.stringify(body)}`)
        return body
      }),
    versions: async (id: string) =>
      (await caller.get<{ items: VersionBody[] }>(`${path}/${id}/versions?sort_by=version&order=asc`)).items,
    /** Creates or replaces an eval case. */
    putEval: (id: string, fields: Json): Promise<Answer> => caller.ask('POST', `${path}/${id}/evals`, fields),
    evals: async (id: string, query = '') =>
      (await caller.get<{ items: EvalCaseBody[] }>(`${path}/${id}/evals${query}`)).items,
    deleteEval: (id: string, caseId: string): Promise<Answer> =>
      caller.ask('DELETE', `${path}/${id}/evals/${caseId}`),
    setEvalGate: (id: string, require_eval_pass: boolean): Promise<Answer> =>
      caller.ask('PUT', `${path}/${id}/eval-gate`, { require_eval_pass }),
    askRunEvals: (id: string, body?: Json): Promise<Answer> =>
      caller.ask('POST', `${path}/${id}/evals/run`, body),
    /** The request must be accepted. */
    runEvals: (id: string, body?: Json): Promise<Accepted> =>
      caller.begin('POST', `${path}/${id}/evals/run`, body),
    evalResults: (id: string, query = '') =>
      caller.get<{ items: EvalResultBody[]; next: string | null }>(`${path}/${id}/evals/results${query}`),
    setSchedule: (id: string, fields: Json): Promise<Answer> =>
      caller.ask('PUT', `${path}/${id}/schedule`, fields),
    endSchedule: (id: string): Promise<Answer> => caller.ask('DELETE', `${path}/${id}/schedule`),
    rotateWebhook: (id: string, body?: Json): Promise<Answer> =>
      caller.ask('POST', `${path}/${id}/webhook/rotate`, body),
    version: (id: string, version: number) => caller.get<VersionBody>(`${path}/${id}/versions/${version}`),
  }
  return workflows
}
