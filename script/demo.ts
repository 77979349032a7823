// The platform's main job, done by an API client: log in, create a container, wait for the operation, read the logs,
// get one answer from the container. Run by `script/server --demo`: `demo.ts <state folder> [API URL]`.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

interface Operation {
  state: string
  error?: unknown
}
interface Container {
  id: string
  name: string
  status: string
  ports: { host_address: string; host_port: number }[]
}

const [, , state = '.state', givenUrl] = process.argv
const owner = readFileSync(join(state, 'owner.json'), 'utf8')
const apiUrl =
  givenUrl ?? (JSON.parse(readFileSync(join(state, 'server.json'), 'utf8')) as { api_url: string }).api_url
let token = ''

/** Sends one request to the API. Throws with the problem document if it is refused. */
async function ask(method: string, path: string, body?: string): Promise<Response> {
  const headers: Record<string, string> = { 'content-type': 'application/json' }
  if (token) headers['authorization'] = `Bearer ${token}`
  const answer = await fetch(new URL(path, apiUrl), { method, headers, ...(body && { body }) })
  console.log(`${method} ${path} -> ${answer.status}`)
  if (!answer.ok) throw new Error(await answer.text())
  return answer
}
const read = async <T>(answer: Response): Promise<T> => (await answer.json()) as T

/** The first answer from an address that may not listen yet. */
async function firstAnswer(url: string): Promise<string> {
  const deadline = Date.now() + 10_000
  for (;;) {
    try {
      return await (await fetch(url)).text()
    } catch (error) {
      if (Date.now() > deadline) throw new Error(`nothing answers at ${url}`, { cause: error })
      await sleep(50)
    }
  }
}

token = (await read<{ token: string }>(await ask('POST', '/api/v1/auth/login', owner))).token

const created = await ask(
  'POST',
  '/api/v1/containers',
  JSON.stringify({
    name: `hello-${Date.now().toString(36)}`,
    image: 'keelson/hello:1',
    cpu_cores: 0.1,
    memory_mib: 64,
    ports: [{ container_port: 8080, protocol: 'tcp' }],
  }),
)
const { id } = await read<Container>(created)

const operationPath = String(created.headers.get('operation-location'))
let operation: Operation
do operation = await read<Operation>(await ask('GET', `${operationPath}?wait=30`))
while (operation.state === 'pending' || operation.state === 'running')
if (operation.state !== 'succeeded')
  throw new Error(`the operation ${operation.state}: ${JSON.stringify(operation.error)}`)

const container = await read<Container>(await ask('GET', `/api/v1/containers/${id}`))
console.log(`\n${container.name} is ${container.status}`)

const port = container.ports[0]
if (!port) throw new Error('the container has no published port')
const url = `http://${port.host_address}:${port.host_port}/`
console.log(`${url} answers: ${await firstAnswer(url)}`)

const logs = await ask('GET', `/api/v1/containers/${id}/logs?lines=20`)
console.log(await logs.text())
