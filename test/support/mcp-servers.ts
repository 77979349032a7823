import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'

// MCP servers for tests: the reference server of the MCP project, and fakes that go wrong in one way each.

const everything = fileURLToPath(
  new URL('../../node_modules/@modelcontextprotocol/server-everything/dist/index.js', import.meta.url),
)

/** Starts the reference server at this port, and waits until it says that it listens. */
export async function openEverything(transport: 'streamableHttp' | 'sse', port: number) {
  const child: ChildProcess = spawn(process.execPath, [everything, transport], {
    env: { PORT: String(port) },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const said: string[] = []
  const lines = (stream: NodeJS.ReadableStream | null) =>
    stream && createInterface(stream).on('line', (line) => said.push(line))
  lines(child.stdout)
  const errors = lines(child.stderr)
  while (!said.some((line) => /listening on port|running on port/.test(line))) {
    if (child.exitCode !== null || !errors) throw new Error(said.join('\n'))
    await once(errors, 'line')
  }
  return {
    url: `http://127.0.0.1:${port}/${transport === 'sse' ? 'sse' : 'mcp'}`,
    /** What it has printed. */
    said,
    async close(): Promise<void> {
      if (child.exitCode !== null || child.signalCode !== null) return
      child.kill('SIGKILL')
      await once(child, 'exit')
    },
  }
}

/** An HTTP server on this machine. */
export async function listen(answer: RequestListener, port = 0) {
  const server = createServer(answer).listen(port, '127.0.0.1')
  await once(server, 'listening')
  const at = (server.address() as AddressInfo).port
  return {
    port: at,
    origin: `http://127.0.0.1:${at}`,
    close(): void {
      server.closeAllConnections()
      server.close()
    },
  }
}

type Json = Record<string, unknown>

/** What a fake server does at each of MCP's methods. Without it, what a server without tools does. */
export interface McpAnswers {
  /** Over the usual result. */
  initialize?: Json
  list?: (params: Json) => Json
  /** Instead of a list. */
  refusal?: { code: number; message: string }
  /** The result of a call of a tool, or an error. */
  call?: (params: Json) => Json | Promise<Json>
  onEnd?: () => void
}

/** A server of MCP's older versions that answers as it is told, over streamable HTTP with JSON. */
export const mcpAnswers =
  (answers: McpAnswers): RequestListener =>
  (request, response) => {
    if (request.method === 'DELETE') answers.onEnd?.()
    if (request.method !== 'POST') {
      response.writeHead(request.method === 'GET' ? 405 : 200).end()
      return
    }
    const answer = async (id: number, method: string, params: Json): Promise<void> => {
      const given = await answerTo(method, params, answers)
      response.writeHead(200, { 'content-type': 'application/json', 'mcp-session-id': 'session-of-test' })
      response.end(JSON.stringify({ jsonrpc: '2.0', id, ...given }))
    }
    let text = ''
    request.on('data', (chunk: Buffer) => (text += chunk.toString()))
    request.on('end', () => {
      const { id, method, params = {} } = JSON.parse(text) as { id?: number; method: string; params?: Json }
      if (id === undefined) {
        response.writeHead(202).end()
        return
      }
      void answer(id, method, params)
    })
  }

const usual = {
  protocolVersion: '2025-06-18',
  capabilities: { tools: {} },
  serverInfo: { name: 'fake', version: '1' },
}

function answerTo(method: string, params: Json, answers: McpAnswers): Json | Promise<Json> {
  const { initialize, list, refusal, call } = answers
  if (method === 'tools/call' && call) return call(params)
  if (method === 'initialize') return { result: { ...usual, ...initialize } }
  if (method !== 'tools/list') return { error: { code: -32601, message: 'Method not found' } }
  return refusal ? { error: refusal } : { result: list?.(params) ?? { tools: [] } }
}

export const toolNamed = (name: string, description = ''): Json => ({
  name,
  description,
  inputSchema: { type: 'object' },
})
