import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { connectDatabase, disconnectDatabase } from '../../../models/database.ts'
import { type Row, timed } from '../measure.ts'
import { insertConnector } from '../models/connector.ts'
import type { Stack } from '../stack.ts'

const run = promisify(execFile)
const repository = fileURLToPath(new URL('../../..', import.meta.url))
const root = '/api/v1/workflows'
const nodes = 5
const rounds = 20
const deployments = 5
const manyRuns = 100
const manyAtOnce = 20
const idleMs = 10_000
const undeployments = 5
const undeployedRuns = 50

interface Run {
  id: string
  status: string
  error: unknown
  ended_at: string | null
}

/**
 * A workflow of five calls of a model, one after the other, in turns with a plain script that makes the same calls to the same
 * provider, which answers at once. The stack must let its gateway for models reach `127.0.0.1:port`.
 */
export async function workflowRuns(stack: Stack, port: number): Promise<Row[]> {
  const provider = spawn(
    process.execPath,
    ['script/benchmarks/models/servers.ts', 'provider', String(port), 'at-once'],
    { cwd: repository, stdio: ['ignore', 'ignore', 'inherit'] },
  )
  const url = `http://127.0.0.1:${port}/v1`
  await connectDatabase({
    KEELSON_MONGODB_URL: stack.mongodbUrl,
    KEELSON_MASTER_KEY_FILE: stack.masterKeyFile,
  })
  try {
    const id = await publish(stack, 'bench-runs', await callsInARow(stack, url))
    const deployed: number[] = []
    const memory: number[] = []
    for (let round = 0; round < deployments; round++) {
      if (round > 0) await stack.finish('POST', `${root}/${id}/undeploy`)
      deployed.push(await timed(() => stack.finish('POST', `${root}/${id}/deploy`)))
      await delay(idleMs)
      memory.push(await memoryMib(stack))
    }
    const ours: number[] = []
    const theirs: number[] = []
    for (let round = -2; round < rounds; round++) {
      const workflow = await timed(() => oneRun(stack, id))
      const script = await timed(async () => {
        for (let call = 0; call < nodes; call++) await callModel(url)
      })
      if (round < 0) continue // warm-up
      ours.push(workflow)
      theirs.push(script)
    }
    const many = await timed(() => runMany(stack, id))
    await stack.finish('POST', `${root}/${id}/undeploy`)
    const undeployed = await undeployUnderRuns(stack)
    return [
      { what: 'an AI workflow, from deploy to ready', unit: 'ms', figures: deployed, note: '< 3000' },
      { what: 'its runner, idle', unit: 'MiB', figures: memory, note: '< 120' },
      { what: `a run of ${nodes} calls of a model`, unit: 'ms', figures: ours },
      { what: 'the same calls by a plain script', unit: 'ms', figures: theirs },
      {
        what: 'difference',
        unit: 'ms',
        figures: ours.map((figure, round) => figure - (theirs[round] ?? Number.NaN)),
        note: '≤ 150',
      },
      {
        what: `runs on one runner, ${manyAtOnce} at once`,
        unit: '1/s',
        figures: [manyRuns / (many / 1000)],
      },
      {
        what: `an undeployment under ${undeployedRuns} runs, until the last has failed`,
        unit: 'ms',
        figures: undeployed,
        note: '< 10000',
      },
    ]
  } finally {
    await disconnectDatabase()
    provider.kill()
    if (provider.exitCode === null && provider.signalCode === null) await once(provider, 'exit')
  }
}

/** The models and nodes of calls in a row. */
async function callsInARow(stack: Stack, base_url: string): Promise<object> {
  const { body: me } = await stack.request<{ tenant_id: string }>('GET', '/api/v1/limits')
  const connector = await insertConnector(me.tenant_id, base_url)
  const names = Array.from({ length: nodes }, (_, at) => `step_${at}`)
  return {
    models: { fast: { connector, model: 'gpt-4o', parameters: { max_tokens: 200 } } },
    nodes: Object.fromEntries(
      names.map((name, at) => [
        name,
        {
          kind: 'llm',
          model: 'fast',
          needs: at > 0 ? [names[at - 1]] : [],
          messages: [
            { role: 'user', content: at > 0 ? `\${nodes.${names[at - 1]}.output}` : '${input.text}' },
          ],
        },
      ]),
    ),
    output: `\${nodes.${names.at(-1)}.output}`,
  }
}

/** A published workflow. Returns its id. */
async function publish(stack: Stack, name: string, its: object): Promise<string> {
  const spec = {
    spec: 1,
    input_schema: { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] },
    budget: { wall_sec: 600 },
    ...its,
  }
  const made = await stack.request<{ id: string }>('POST', root, { name, spec })
  const published = await stack.request('POST', `${root}/${made.body.id}/publish`)
  if (published.status !== 201) throw new Error(JSON.stringify(published.body))
  return made.body.id
}

/** Undeploys a workflow whose runs wait for a person. Returns the times from the request to the end of the last run. */
async function undeployUnderRuns(stack: Stack): Promise<number[]> {
  const ask = { kind: 'approve', message: 'Go on?', deadline_sec: 500 }
  const id = await publish(stack, 'bench-undeployments', { nodes: { ask }, output: null })
  const figures: number[] = []
  for (let round = 0; round < undeployments; round++) {
    await stack.finish('POST', `${root}/${id}/deploy`)
    const accepted = await Promise.all(
      Array.from({ length: undeployedRuns }, () =>
        stack.request<Run>('POST', `${root}/${id}/run`, { input: { text: 'x' } }),
      ),
    )
    const ids = new Set(accepted.map(({ body }) => body.id))
    const runs = async (): Promise<Run[]> => {
      const { body } = await stack.request<{ items: Run[] }>('GET', `${root}/${id}/runs?limit=100`)
      return body.items.filter((one) => ids.has(one.id))
    }
    while ((await runs()).some(({ status }) => status !== 'running')) await delay(100)
    const begun = Date.now()
    await stack.finish('POST', `${root}/${id}/undeploy`)
    const ended = await runs()
    if (ended.length !== undeployedRuns || ended.some(({ status }) => status !== 'failed'))
      throw new Error(JSON.stringify(ended))
    figures.push(Math.max(...ended.map(({ ended_at }) => Date.parse(ended_at ?? ''))) - begun)
  }
  return figures
}

async function oneRun(stack: Stack, id: string): Promise<void> {
  const input = { text: 'word '.repeat(100) }
  let { body } = await stack.request<Run>('POST', `${root}/${id}/run?wait=60`, { input })
  while (body.status === 'queued' || body.status === 'running')
    ({ body } = await stack.request<Run>('GET', `${root}/${id}/runs/${body.id}?wait=60`))
  if (body.status !== 'succeeded') throw new Error(JSON.stringify(body))
}

async function runMany(stack: Stack, id: string): Promise<void> {
  let left = manyRuns
  const one = async () => {
    while (left-- > 0) await oneRun(stack, id)
  }
  await Promise.all(Array.from({ length: manyAtOnce }, one))
}

async function callModel(url: string): Promise<void> {
  const answer = await fetch(`${url}/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: 'Bearer sk-bench' },
    body: JSON.stringify({ model: 'gpt-4o', messages: [{ role: 'user', content: 'word '.repeat(100) }] }),
  })
  if (!answer.ok) throw new Error(`the provider answers ${answer.status}`)
  await answer.json()
}

/** What the only runner’s container takes, as `docker stats` counts it: without files that were read once. */
async function memoryMib({ dockerHost }: Stack): Promise<number> {
  const docker = async (...args: string[]) => (await run('docker', ['-H', dockerHost, ...args])).stdout.trim()
  const [id = ''] = (await docker('ps', '--quiet', '--filter', 'ancestor=keelson/runner:1')).split('\n')
  const used = await docker('stats', '--no-stream', '--format', '{{.MemUsage}}', id)
  const [, mib] = /^([\d.]+)MiB /.exec(used) ?? []
  if (mib === undefined) throw new Error(`the runner uses ${used}`)
  return Number(mib)
}
