import { fileURLToPath } from 'node:url'
import { bundleWorkflowCode, DefaultLogger, NativeConnection, Runtime, Worker } from '@temporalio/worker'
import { connectWrites } from './writes.ts'

// The worker of bare workflows: `worker.ts <MongoDB's URL> <Temporal's address> <namespace> <queue>`, until SIGTERM. It
// is tuned as the platform's own (worker/workflow-threads.ts, workflows/sandbox.ts), so that the ratio shows the
// platform's overhead, not that of an untuned SDK.

const [mongodbUrl = '', address = '', namespace = '', taskQueue = ''] = process.argv.slice(2)
const at = (path: string): string => fileURLToPath(new URL(path, import.meta.url))

Runtime.install({ logger: new DefaultLogger('WARN'), shutdownSignals: [] })
const writes = await connectWrites(mongodbUrl)
const connection = await NativeConnection.connect({ address })
const workflowBundle = await bundleWorkflowCode({
  workflowsPath: at('workflows.ts'),
  preloadModules: [at('../../../workflows/sandbox.ts'), at('workflows.ts')],
  logger: new DefaultLogger('WARN'),
})
const worker = await Worker.create({
  connection,
  namespace,
  taskQueue,
  workflowBundle,
  activities: { begin: (id: string) => writes.begin(id), end: (id: string) => writes.end(id) },
  maxCachedWorkflows: 500,
})
process.once('SIGTERM', () => worker.shutdown())
const running = worker.run()
console.log('ready')
await running
await connection.close()
await writes.close()
