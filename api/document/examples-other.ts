import { id } from './example-values.ts'

const spec = {
  spec: 1,
  input_schema: { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] },
  budget: { tokens: 1000, usd: 0.01, wall_sec: 60 },
  nodes: { greet: { kind: 'template', value: { greeting: 'You said ${input.text}' } } },
  output: '${nodes.greet.output}',
}

/** Bodies of connectors, tools, retrieval and AI workflows. */
export const otherExamples = {
  updateConnector: { name: 'github-work' },
  importConnector: { provider: 'openai', api_key: 'the-key-of-the-account' },
  startDeviceLogin: { provider: 'github' },
  pollDeviceLogin: { login_id: id },
  startOauthLogin: { provider: 'gitlab' },
  completeOauthLogin: { login_id: id, code: 'the-pasted-code' },
  enableRagStore: { subnet_id: id },
  setRagSnapshotRules: { frequency: '0 4 * * *', timezone: 'Europe/Berlin', keep: 7 },
  restoreRagStore: { snapshot: 'snapshot-1' },
  createRagCollection: { name: 'manuals', metadata_schema: { product: 'string', pages: 'number' } },
  updateRagCollection: { embedder: { connector: 'openai', model: 'text-embedding-3-small' } },
  createRagCollectionDocument: {
    name: 'pump.md',
    type: 'md',
    content: 'The pump starts with the green button.',
    metadata: { product: 'pump' },
  },
  searchRagCollection: { query: 'How do I start the pump?', k: 5, filter: { product: 'pump' } },
  createTool: {
    kind: 'mcp',
    name: 'issues',
    description: 'Reads and writes issues',
    transport: 'streamable_http',
    url: 'https://mcp.example.com/mcp',
    auth: { type: 'none' },
  },
  updateTool: { description: 'Reads issues' },
  testTool: { test_url: 'https://mcp.example.com/mcp' },
  createWorkflow: { name: 'echo', description: 'Answers with its input', spec },
  updateWorkflow: { description: 'Answers with its text' },
  validateWorkflow: {},
  deployWorkflow: {},
  setWorkflowCanary: { weight: 10 },
  putWorkflowEval: {
    name: 'says-hello',
    input: { text: 'hello' },
    assertion: { kind: 'contains', text: 'hello' },
  },
  setWorkflowEvalGate: { require_eval_pass: true },
  runWorkflowEvals: { target: 'primary' },
  rotateWorkflowWebhook: { overlap_sec: 3600 },
  runWorkflow: { input: { text: 'hello' } },
  decideWorkflowRunNode: { approved: true, comment: 'Looks right' },
  setWorkflowSchedule: { frequency: '0 8 * * 1-5', timezone: 'Europe/Berlin', input: { text: 'hello' } },
}
