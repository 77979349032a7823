import { crashLoops } from './benchmarks/crash-loops.ts'
import { creates } from './benchmarks/creates.ts'
import { databaseCopies } from './benchmarks/database-copies.ts'
import { databaseSchedules } from './benchmarks/database-schedules.ts'
import { databases } from './benchmarks/databases.ts'
import { deployServers } from './benchmarks/deploy-servers.ts'
import { disks } from './benchmarks/disks.ts'
import { growingTenant } from './benchmarks/growth/containers.ts'
import { growingReaders } from './benchmarks/growth/readers.ts'
import { growingFleet, growingReport } from './benchmarks/growth/reports.ts'
import { growingBacklog } from './benchmarks/growth/waiting.ts'
import { identity } from './benchmarks/identity.ts'
import { lists } from './benchmarks/lists.ts'
import { loadBalancers } from './benchmarks/load-balancers.ts'
import { logs } from './benchmarks/logs.ts'
import { machines } from './benchmarks/machines.ts'
import { machine, type Row, table } from './benchmarks/measure.ts'
import { modelGateway } from './benchmarks/model-gateway.ts'
import { metrics } from './benchmarks/metrics.ts'
import { networks } from './benchmarks/networks.ts'
import { operations } from './benchmarks/operations.ts'
import { reads } from './benchmarks/reads.ts'
import { idleMemory, recovery } from './benchmarks/recovery.ts'
import { embedderSpeed } from './benchmarks/retrieval/embedder.ts'
import { retrievalDocuments } from './benchmarks/retrieval/documents.ts'
import { retrievalOthers } from './benchmarks/retrieval/others.ts'
import { retrievalQuality } from './benchmarks/retrieval/quality.ts'
import { retrievalStore } from './benchmarks/retrieval/store.ts'
import { type Stack, startStack } from './benchmarks/stack.ts'
import { tunnels } from './benchmarks/tunnels.ts'
import { turns } from './benchmarks/turns.ts'
import { expressions } from './benchmarks/workflows/expressions.ts'
import { workflowRuns } from './benchmarks/workflows/runs.ts'

// Measures the platform on this machine, each row beside its reference, and prints a
// table. `script/bench reads growing` measures only these: names, or beginnings of names.

const portBase = Number(process.env['KEELSON_PORT_BASE'] ?? 28_000)
/** Of the provider of models whose calls the stack's own gateway makes. */
const providerPort = portBase + 70
const benches: Record<string, (stack: Stack) => Promise<Row[]>> = {
  memory: idleMemory, // first, while the platform has done nothing
  reads: (stack) => reads(stack, portBase + 90),
  lists,
  metrics,
  logs,
  identity,
  creates,
  turns,
  'crash-loops': crashLoops,
  networks,
  'networks-tunnel': tunnels,
  'load-balancers': loadBalancers,
  'deploy-servers': deployServers,
  databases,
  'databases-copies': databaseCopies,
  'databases-schedules': databaseSchedules,
  'model-gateway': (stack) => modelGateway(stack, portBase + 60),
  'retrieval-store': () => retrievalStore(),
  'retrieval-others': () => retrievalOthers(),
  'retrieval-embedder': () => embedderSpeed(),
  'retrieval-quality': () => retrievalQuality(),
  'retrieval-documents': retrievalDocuments,
  'workflow-expressions': () => expressions(),
  'workflow-runs': (stack) => workflowRuns(stack, providerPort),
  disks,
  machines,
  operations,
  recovery,
  'growing-tenant': growingTenant,
  'growing-report': growingReport,
  'growing-fleet': growingFleet,
  'growing-backlog': growingBacklog,
  'growing-readers': growingReaders,
}
const wanted = process.argv.slice(2)
const means = (word: string, name: string): boolean => name === word || name.startsWith(`${word}-`)
const names = Object.keys(benches)
const unknown = wanted.filter((word) => !names.some((name) => means(word, name)))
if (unknown.length) {
  const isQuestion = unknown.every((word) => word === '--help' || word === '-h')
  const said = `script/bench [NAME…], all without a name: ${names.join(', ')}`
  if (isQuestion) console.log(said)
  else console.error(`No such bench: ${unknown.join(', ')}. ${said}`)
  process.exit(isQuestion ? 0 : 2)
}

const stack = await startStack(portBase, [providerPort])
try {
  const rows: Row[] = []
  for (const [name, bench] of Object.entries(benches)) {
    if (wanted.length && !wanted.some((word) => means(word, name))) continue
    console.error(`measuring ${name}`)
    const measured = await bench(stack)
    console.error(table(measured)) // a later bench may fail
    rows.push(...measured)
  }
  console.log(`${new Date().toISOString().slice(0, 10)}, ${machine()}\n\n${table(rows)}`)
} finally {
  await stack.stop()
}
process.exit()
