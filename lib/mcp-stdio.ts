import type { Duplex } from 'node:stream'
import {
  Client,
  type JSONRPCMessage,
  ReadBuffer,
  serializeMessage,
  type Transport,
} from '@modelcontextprotocol/client'
import {
  type Bounds,
  clientFault,
  endsWith,
  listingOf,
  type McpListing,
  patience,
  type Phase,
  short,
} from './mcp-client.ts'
import { type Fault, ProbeFailed, type Stages } from './probe-stages.ts'

// Asks an MCP server that speaks over its input and output what tools it has. The server may be any program.

/** A slow machine takes half a minute to start Node, and `npx` downloads a package first. */
export const stdioBounds: Bounds = { withinMs: 90_000, mostBytes: 512 * 1024, mostTools: 256 }

export interface StdioServer {
  /** The command's input and output. */
  stream: Duplex
  /** What the command wrote to its errors, at most some lines. */
  said: () => Promise<string>
  redact: <T>(value: T) => T
}

/** Notes the stages `initialize` and `list`. Ends the stream. Throws ProbeFailed. */
export async function probeStdio(
  { stream, said, redact }: StdioServer,
  stages: Stages,
  bounds: Bounds = stdioBounds,
): Promise<McpListing> {
  const signal = AbortSignal.timeout(bounds.withinMs)
  const transport = new StreamTransport(stream, bounds.mostBytes)
  const client = new Client({ name: 'keelson', version: '1' }, { capabilities: {} })
  let phase: Phase = 'initialize'
  try {
    await stages.run('initialize', () => endsWith(signal, client.connect(transport, patience)))
    phase = 'list'
    const { mostTools } = bounds
    return await stages.run('list', () => endsWith(signal, listingOf(client, 'stdio', { mostTools, redact })))
  } catch (error) {
    const last =
      transport.ended && !transport.tooLarge && !signal.aborted ? redact(await said().catch(() => '')) : ''
    throw new ProbeFailed(faultOf(error, phase, transport, { isLate: signal.aborted, last, redact }), {
      cause: error,
    })
  } finally {
    await client.close().catch(() => {})
    await transport.close()
  }
}

function faultOf(
  error: unknown,
  phase: Phase,
  { tooLarge, ended }: StreamTransport,
  { isLate, last, redact }: { isLate: boolean; last: string; redact: StdioServer['redact'] },
): Fault {
  if (tooLarge)
    return {
      stage: phase,
      reason: 'too_large',
      cause: 'The answers of the server are too large',
      remedy: 'Let the server have fewer tools, or shorter descriptions and schemas',
    }
  if (isLate)
    return {
      stage: phase,
      reason: 'no_answer',
      cause: `The command runs, but did not answer the ${phase === 'list' ? 'request for its tools' : 'handshake'} in time`,
      remedy: 'Check that the command is an MCP server with the transport stdio',
    }
  if (ended)
    return {
      stage: phase,
      reason: 'command_ended',
      cause: `The command ended before it answered${last ? `: ${short(last).trim()}` : ''}`,
      remedy: 'Check the command and its arguments; a command that downloads a package needs `subnet_id`',
    }
  return clientFault(error, phase, redact)
}

/** The protocol's lines over the input and output of a command. */
class StreamTransport implements Transport {
  onclose?: Transport['onclose']
  onerror?: Transport['onerror']
  onmessage?: Transport['onmessage']
  /** The command has closed its output. */
  ended = false
  tooLarge = false
  readonly #stream: Duplex
  readonly #mostBytes: number
  readonly #lines = new ReadBuffer()
  #bytes = 0

  constructor(stream: Duplex, mostBytes: number) {
    this.#stream = stream
    this.#mostBytes = mostBytes
  }

  async start(): Promise<void> {
    this.#stream.on('data', (chunk: Buffer) => this.#take(chunk))
    const end = (): void => {
      this.ended = true
      this.onclose?.()
    }
    this.#stream.once('end', end)
    this.#stream.once('close', end)
  }

  async send(message: JSONRPCMessage): Promise<void> {
    this.#stream.write(serializeMessage(message))
  }

  async close(): Promise<void> {
    this.#stream.destroy()
  }

  #take(chunk: Buffer): void {
    this.#bytes += chunk.length
    this.tooLarge = this.#bytes > this.#mostBytes
    if (this.tooLarge) {
      this.#stream.destroy()
      this.onclose?.()
      return
    }
    this.#lines.append(chunk)
    for (;;) {
      try {
        const message = this.#lines.readMessage()
        if (message === null) return
        this.onmessage?.(message)
      } catch (error) {
        this.onerror?.(error as Error) // a line that is no message: many servers also print
      }
    }
  }
}
