import { type Client, ProtocolError, UnsupportedProtocolVersionError } from '@modelcontextprotocol/client'
import { CursorRepeats, type Listed, listTools } from './mcp-tools.ts'
import type { Fault } from './probe-stages.ts'

// What probes of MCP servers share, whatever their transport.

export interface Bounds {
  /** For all of it. */
  withinMs: number
  /** Of all answers together. */
  mostBytes: number
  mostTools: number
}

export interface McpListing extends Listed {
  transport: 'streamable_http' | 'sse' | 'stdio'
  protocol_version: string | null
  server: { name: string; version: string } | null
}

/** Takes the secrets out of what a server says. */
export type Redact = <T>(value: T) => T

/** What a connected client was asked last. */
export type Phase = 'initialize' | 'list'

/** Longer than any probe: its own end comes first, and says more. */
export const patience = { timeout: 600_000 }

/** Lists the tools of a connected client's server. Throws as listTools. */
export async function listingOf(
  client: Client,
  transport: McpListing['transport'],
  { mostTools, redact }: { mostTools: number; redact: Redact },
): Promise<McpListing> {
  const listed = await listTools(client, mostTools, redact)
  const { name = '', version = '' } = client.getServerVersion() ?? {}
  return {
    ...listed,
    transport,
    protocol_version: client.getNegotiatedProtocolVersion() ?? null,
    server: name ? redact({ name: short(name), version: short(version) }) : null,
  }
}

/** Work that ends at the signal, also if its client would wait on. */
export async function endsWith<T>(signal: AbortSignal, work: Promise<T>): Promise<T> {
  const ended = new Promise<never>((_, reject) => {
    const end = (): void => reject(new Error('The probe took too long'))
    if (signal.aborted) end()
    else signal.addEventListener('abort', end, { once: true })
  })
  return Promise.race([work, ended])
}

/** What the client’s own error says. `redact` takes the secrets out of what the server says. */
export function clientFault(error: unknown, phase: Phase, redact: Redact): Fault {
  if (error instanceof UnsupportedProtocolVersionError || /protocol version/i.test(messageOf(error)))
    return {
      stage: 'initialize',
      reason: 'unsupported_version',
      cause: 'The server supports no version of MCP that this platform knows',
      remedy: 'Update the server',
    }
  if (error instanceof CursorRepeats)
    return {
      stage: 'list',
      reason: 'endless_list',
      cause: 'The server names the same next page again and again',
      remedy: 'Repair the paging of the server',
    }
  if (error instanceof ProtocolError)
    return {
      stage: phase,
      reason: 'refused_by_server',
      cause: `The server answers with error ${error.code}: ${short(redact(error.message))}`,
      remedy: 'Look at the log of the server',
    }
  return {
    stage: phase,
    reason: 'invalid_answer',
    cause: `The server’s answer to ${phase === 'list' ? 'tools/list' : 'the handshake'} does not follow MCP`,
    remedy: 'Update the server, or report the fault to its developers',
  }
}

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : '')

/** A text of the server, for a line. */
export const short = (text: string): string => text.replaceAll(/[\p{C}\s]+/gu, ' ').slice(0, 200)
