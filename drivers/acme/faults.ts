import { AccountUnknown, AuthorityRefused, AuthorityUnavailable, EngineError } from '../errors.ts'

// What an answer of an ACME server means: its problem documents are those of RFC 8555, section 6.7.

interface AcmeProblem {
  type?: string
  detail?: string
  subproblems?: { detail?: string; identifier?: { value?: string } }[]
}

const prefix = 'urn:ietf:params:acme:error:'
const longest = 500

/** Null for a success, and for a refused nonce, which the library repeats with a new one. */
export function toError({ status, data }: { status: number; data: unknown }): EngineError | null {
  if (status < 400) return null
  const problem: AcmeProblem = typeof data === 'object' && data !== null ? data : {}
  const kind = problem.type?.startsWith(prefix) ? problem.type.slice(prefix.length) : null
  if (kind === 'badNonce') return null
  if (kind === 'accountDoesNotExist') return new AccountUnknown()
  const said = sentence(problem) || `status ${status}`
  if (kind === 'rateLimited') return new AuthorityRefused(`The authority limits the rate: ${said}`)
  if (status >= 500 || status === 429) return new AuthorityUnavailable(said)
  return new AuthorityRefused(`The authority refused: ${said}`)
}

const sentence = ({ detail, subproblems = [] }: AcmeProblem): string =>
  [detail ?? '', ...subproblems.map((one) => `${one.identifier?.value ?? ''}: ${one.detail ?? ''}`)]
    .filter((text) => text !== '')
    .join('; ')
    .slice(0, longest)

/** Runs calls of the library. Whatever is not an answer of the authority is a failure to reach it. */
export async function toFault<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    if (error instanceof EngineError) throw error
    // The cause is left out: an error of the HTTP library holds the whole request.
    throw new AuthorityUnavailable(codeOf(error))
  }
}

const codeOf = (error: unknown): string => {
  if (error instanceof Error && 'code' in error && typeof error.code === 'string') return error.code
  return error instanceof Error ? error.message.slice(0, longest) : 'unknown'
}
