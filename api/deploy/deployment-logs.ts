import { Readable } from 'node:stream'
import { setTimeout } from 'node:timers/promises'
import { z } from 'zod'
import { Deployment, type DeploymentDocument, deploymentOf } from '../../models/deploy/deployments.ts'
import { logsQuery, sendLogs } from '../compute/observation/logs.ts'
import { Id, Timestamp } from '../fields.ts'
import { operation, stream } from '../operation.ts'
import { path } from './deployments.ts'

// The log of a deployment, also while it is written.

// One read of one record; a deployment writes a line every second or so.
const lookEveryMs = 500

const DeploymentLine = z.strictObject({ time: Timestamp, line: z.string() }).meta({ id: 'DeploymentLogLine' })

export const deploymentLogs = [
  operation({
    method: 'GET',
    path: `${path}/deployments/{deployment}/log`,
    permission: 'deploy_servers:read',
    summary: 'Get the log of a deployment, or follow it until the deployment ends',
    params: z.strictObject({ id: Id, deployment: Id }),
    query: z.strictObject({
      lines: logsQuery.lines,
      follow: logsQuery.follow.describe('Stream new lines as server-sent events until the deployment ends'),
    }),
    responses: { 200: stream('application/x-ndjson', DeploymentLine) },
    handle: async ({ caller, params, query, http: { response } }) => {
      const deployment = await deploymentOf(caller, params.id, params.deployment)
      const gone = new AbortController()
      response.once('close', () => gone.abort())
      const text = Readable.from(linesOf(deployment, query, gone.signal), { objectMode: false })
      await sendLogs(text, response, { follow: query.follow, timestamps: true })
    },
  }),
]

async function* linesOf(
  { _id, tenant_id }: DeploymentDocument,
  { lines, follow }: { lines?: number | undefined; follow: boolean },
  signal: AbortSignal,
): AsyncGenerator<string> {
  let sent: number | null = null
  for (;;) {
    const now = await Deployment.findOne({ _id, tenant_id }, { log: 1, log_lines: 1, status: 1 }).lean()
    if (!now) return
    const { log, log_lines, status } = now
    // The record keeps the last lines only: those before them are gone.
    const next: number = sent ?? Math.max(0, log_lines - (lines ?? log.length))
    for (const { time, line } of log.slice(Math.max(0, log.length - (log_lines - next))))
      yield `${JSON.stringify({ time: time.toISOString(), line })}\n`
    sent = log_lines
    if (!follow || status !== 'creating') return
    await setTimeout(lookEveryMs, undefined, { signal })
  }
}
