import { once } from 'node:events'
import { createServer } from 'node:http'
import { collectDefaultMetrics, Counter, Gauge, Histogram, register } from 'prom-client'
import { listenAddress } from './addresses.ts'
import type { Logger } from './log.ts'

// Prometheus metrics of each role. No label names a tenant or a resource: readers of metrics may not be allowed to see
// them, and their number is unbounded.

const seconds = {
  short: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60],
  long: [0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300, 1800],
}

export const metrics = {
  httpRequests: new Histogram({
    name: 'keelson_http_request_duration_seconds',
    help: 'From a request to the end of its answer; a stream counts until it is closed',
    labelNames: ['operation', 'status'] as const,
    buckets: seconds.short,
  }),
  operationsAccepted: new Counter({
    name: 'keelson_operations_accepted_total',
    help: 'Operations that this process accepted',
    labelNames: ['kind', 'verb'] as const,
  }),
  operationsEnded: new Histogram({
    name: 'keelson_operation_duration_seconds',
    help: 'From the acceptance of an operation to its end, by how it ended; only operations that this process ended',
    labelNames: ['kind', 'verb', 'state'] as const,
    buckets: seconds.long,
  }),
  aiRunsEnded: new Histogram({
    name: 'keelson_ai_run_duration_seconds',
    help: 'From the acceptance of a run of an AI workflow to its end, by what started it and how it ended; only runs that this process ended',
    labelNames: ['trigger', 'status'] as const,
    buckets: seconds.long,
  }),
  activities: new Histogram({
    name: 'keelson_activity_duration_seconds',
    help: 'How long a step of a workflow ran, and whether it failed',
    labelNames: ['activity', 'outcome'] as const,
    buckets: seconds.short,
  }),
  gatewayCalls: new Counter({
    name: 'keelson_gateway_calls_total',
    help: 'Calls of hosts and runners to the gateway, by the gRPC status of the answer',
    labelNames: ['method', 'status'] as const,
  }),
  modelCalls: new Counter({
    name: 'keelson_model_calls_total',
    help: 'Calls to the model gateway, by the status of the answer',
    labelNames: ['endpoint', 'status'] as const,
  }),
  modelTokens: new Counter({
    name: 'keelson_model_tokens_total',
    help: 'Tokens of calls that this gateway settled, in and out',
    labelNames: ['direction'] as const,
  }),
  balancedRequests: new Counter({
    name: 'keelson_load_balancer_requests_total',
    help: 'Requests to the load balancers of this host, by the class of the response',
    labelNames: ['response'] as const,
  }),
  balancedBytes: new Counter({
    name: 'keelson_load_balancer_bytes_total',
    help: 'Bytes from clients (in) and to clients (out) of the load balancers of this host',
    labelNames: ['direction'] as const,
  }),
  balancedConnections: new Gauge({
    name: 'keelson_load_balancer_connections',
    help: 'Open connections from the load balancers of this host to targets',
  }),
  logBytes: new Counter({
    name: 'keelson_log_archived_bytes_total',
    help: 'Output that this host brought to the archive, as it was in the engine’s files',
  }),
  logPieces: new Counter({
    name: 'keelson_log_archived_pieces_total',
    help: 'Pieces in which this host brought output to the archive',
  }),
  storeRefused: new Counter({
    name: 'keelson_store_refused_total',
    help: 'Parts of output, artifacts, backups and answers of models that were not stored because MongoDB’s disk is too full',
  }),
}

/**
 * A gauge that calls `ask` at each scrape; with `label`, one series per key. Values that cannot be read are left out.
 */
export function gauge(
  name: string,
  help: string,
  ask: () => Promise<number> | number | Map<string, number>,
  label?: string,
): void {
  const made = new Gauge({
    name,
    help,
    labelNames: label ? [label] : [],
    async collect() {
      made.reset()
      const value = await Promise.resolve(ask()).catch(() => new Map<string, number>())
      if (typeof value === 'number') made.set(value)
      else if (label) for (const [of, count] of value) made.set({ [label]: of }, count)
      else made.remove()
    },
  })
}

/** Serves `/metrics`, including process metrics. If the port is taken, the role runs without metrics. */
export async function serveMetrics(
  role: string,
  settings: { KEELSON_METRICS_ADDRESS: string; KEELSON_METRICS_PORT: number },
  log: Logger,
): Promise<{ close: () => Promise<void> }> {
  register.setDefaultLabels({ role })
  collectDefaultMetrics()
  const server = createServer((request, response) => {
    if (request.method !== 'GET' || request.url !== '/metrics') {
      response.writeHead(404).end()
      return
    }
    register.metrics().then(
      (text) => response.writeHead(200, { 'content-type': register.contentType }).end(text),
      (error: unknown) => {
        log.error({ err: error }, 'the metrics could not be collected')
        response.writeHead(500).end()
      },
    )
  })
  const { KEELSON_METRICS_ADDRESS: address, KEELSON_METRICS_PORT: port } = settings
  try {
    server.listen(port, listenAddress(address))
    await once(server, 'listening')
  } catch (error) {
    log.error({ err: error, address, port }, 'no metrics: this process cannot listen on the address')
  }
  return {
    async close() {
      if (!server.listening) return
      server.close()
      server.closeAllConnections()
      await once(server, 'close')
    },
  }
}
