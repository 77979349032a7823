import type { Request } from 'express'
import { z } from 'zod'
import { ConsoleSize, LogLine } from '../../../lib/host-protocol.ts'
import { StateConflict, UpgradeRequired } from '../../../lib/problem.ts'
import { asksForWebSocket } from '../../../lib/websockets.ts'
import { needUnmanaged } from '../../../models/managed.ts'
import { mine } from '../../../models/resources.ts'
import { activityList } from '../../activity.ts'
import { byId } from '../../fields.ts'
import { type Operation, operation, socket, stream } from '../../operation.ts'
import { join } from '../../sockets.ts'
import { askHost, connectHost } from './data-plane.ts'
import type { ShownInstance } from '../instances.ts'
import { Command, instanceExec } from './exec.ts'
import { outputOf, sendArchive } from './log-archive.ts'
import { askLogs, Flag, logsQuery, sendLogs } from './logs.ts'
import { MetricsQuery, MetricsView, metricsOf } from './metrics.ts'

// Logs, metrics, console and activity of instances.

const instanceLogs = (shown: ShownInstance, { plural, kind: { title } } = shown): Operation =>
  operation({
    method: 'GET',
    path: `/api/v1/${plural}/{id}/logs`,
    permission: `${plural}:read`,
    summary: `Get the output of a ${title} (stdout and stderr)`,
    params: byId,
    query: z.strictObject({ ...logsQuery, timestamps: Flag.default(true) }),
    responses: { 200: stream('application/x-ndjson', LogLine) },
    handle: async ({ caller, params, query, http: { response } }) => {
      const instance = await mine(shown.kind.resource, caller, params.id)
      if (!instance.host_id) throw new StateConflict('read logs', instance.status)
      const gone = new AbortController()
      response.once('close', () => gone.abort())
      const lines = await askHost(instance.host_id, params.id, 'logs', askLogs(query), gone.signal)
      await sendLogs(lines, response, query)
    },
  })

const instanceLogArchive = (shown: ShownInstance, { plural, kind: { title } } = shown): Operation =>
  operation({
    method: 'GET',
    path: `/api/v1/${plural}/{id}/logs/archive`,
    permission: `${plural}:read`,
    summary: `Get the complete output of a ${title}: the archived part, then the part still on its host`,
    lasts: 'archive',
    params: byId,
    responses: {
      200: stream(
        'text/plain',
        z
          .string()
          .describe(
            'The output as text, gzipped if `Accept-Encoding` allows it. A line that starts with `[keelson: ` marks missing output; the trailer `X-Archive-Complete` is then `false`',
          ),
      ),
    },
    handle: async ({ caller, params, http: { request, response } }) => {
      const instance = await mine(shown.kind.resource, caller, params.id)
      const accepted = (request as Request).acceptsEncodings('gzip', 'identity')
      await sendArchive((...reading) => outputOf(instance, ...reading), response, {
        compressed: accepted === 'gzip',
        mediaType: 'text/plain; charset=utf-8',
      })
    },
  })

const instanceMetrics = (shown: ShownInstance, { plural, kind: { title } } = shown): Operation =>
  operation({
    method: 'GET',
    path: `/api/v1/${plural}/{id}/metrics`,
    permission: `${plural}:read`,
    summary: `Get the CPU, memory, network and disk usage of a ${title}`,
    params: byId,
    query: MetricsQuery,
    responses: { 200: MetricsView },
    handle: async ({ caller, params, query }) => {
      const { _id: instance_id, tenant_id } = await mine(shown.kind.resource, caller, params.id)
      return metricsOf({ tenant_id, instance_id }, query)
    },
  })

const instanceConsole = (shown: ShownInstance, { plural } = shown): Operation =>
  operation({
    method: 'GET',
    path: `/api/v1/${plural}/{id}/console`,
    permission: `${plural}:console`,
    summary: `${shown.console.words}, as a WebSocket`,
    params: byId,
    query: z.strictObject({
      command: z
        .preprocess((given) => (typeof given === 'string' ? [given] : given), Command)
        .default(shown.console.command)
        .describe('The command to run; repeat the parameter for each argument'),
      cols: ConsoleSize.shape.cols.default(80),
      rows: ConsoleSize.shape.rows.default(24),
    }),
    responses: {
      101: socket(
        'binary frames carry what is typed and what is shown; a text frame `{"type": "resize", "cols", "rows"}` changes the size. The close code says why it ended: 1000 with the command’s exit code, 1001 the platform is stopping, 1003 a text frame was not understood, 1008 the token or the permission has ended, 1011 the host or its engine failed. Browsers send the token as the subprotocol `bearer.<token>`',
      ),
    },
    handle: async ({ caller, params, query, http: { request, response } }) => {
      const instance = await mine(shown.kind.resource, caller, params.id)
      if (!asksForWebSocket(request)) throw new UpgradeRequired()
      needUnmanaged(shown.kind.title, instance)
      if (instance.status !== 'running' || !instance.host_id)
        throw new StateConflict('open a console', instance.status)
      const ask = new URLSearchParams(query.command.map((word): [string, string] => ['command', word]))
      ask.set('cols', String(query.cols))
      ask.set('rows', String(query.rows))
      const host = await connectHost(instance.host_id, params.id, 'console', ask)
      // If the client has left already, the function below is never called.
      if (response.destroyed) host.terminate()
      response.once('close', () => host.terminate())
      return (client) => join(client, host)
    },
  })

const instanceActivity = (shown: ShownInstance, { plural, kind: { title } } = shown): Operation =>
  activityList({
    path: `/api/v1/${plural}/{id}/activity`,
    permission: `${plural}:read`,
    summary: `List what happened to a ${title}: its creation, failed operations, restarts, repairs, health changes`,
    ownerOf: (caller, id) => mine(shown.kind.resource, caller, id),
  })

/** The operations for logs, metrics, console and activity, for one kind of instance. */
export const instanceObservation = (shown: ShownInstance): Operation[] =>
  [instanceLogs, instanceLogArchive, instanceMetrics, instanceConsole, instanceExec, instanceActivity].map(
    (of) => of(shown),
  )
