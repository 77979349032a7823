import { extractWWWAuthenticateParams } from '@modelcontextprotocol/client'
import { z } from 'zod'
import type { WatchedFetch } from './outbound-fetch.ts'
import type { Fault } from './probe-stages.ts'

// Where a server that answers 401 says that one logs in (RFC 9728).

const Metadata = z.object({ authorization_servers: z.array(z.url().max(200)).min(1) })
const shown = 3

/** What a 401 means if the server names its authorization servers; nothing if it does not. */
export async function loginOf(
  way: WatchedFetch,
  { url, redact }: { url: string; redact: <T>(value: T) => T },
): Promise<Pick<Fault, 'cause' | 'remedy' | 'authorization_servers'> | object> {
  const { answer } = way
  if (!answer) return {}
  try {
    const named = extractWWWAuthenticateParams(new Response(null, answer)).resourceMetadataUrl
    const metadata = await way.fetch(named ?? wellKnownOf(url))
    const { authorization_servers } = Metadata.parse(await metadata.json())
    const servers = redact(authorization_servers.slice(0, shown))
    return {
      cause: `The server wants a login (HTTP 401) at ${servers.join(', ')}`,
      remedy: 'Connect the server with an mcp connector, and give the tool an auth of type oauth with it',
      authorization_servers: servers,
    }
  } catch {
    return {} // it is a hint: whatever it is, the 401 stands
  }
}

/** `https://host/mcp` → `https://host/.well-known/oauth-protected-resource/mcp` */
function wellKnownOf(url: string): URL {
  const { pathname } = new URL(url)
  return new URL(`/.well-known/oauth-protected-resource${pathname === '/' ? '' : pathname}`, url)
}
