import { Problem } from '../../lib/problem.ts'
import { ProbeFailed } from '../../lib/probe-stages.ts'
import { secretOf } from '../connectors/secrets.ts'
import { type Definition, originOf } from './definitions.ts'
import { opened } from './secrets.ts'
import { definition, type ToolDocument } from './tools.ts'

// The credential of a tool, opened for one call or probe.

export interface OpenCredential {
  /** With the secret. Empty: the tool has none. */
  headers: Record<string, string>
  /** What must not come out again, in the forms in which others may repeat it. */
  secrets: string[]
}

/** Checks the form of the credential too. Throws ProbeFailed, which says what is wrong with it. */
export async function credentialOf(tool: ToolDocument): Promise<OpenCredential> {
  const { type, name, connector_id } = tool.auth
  if (connector_id !== null) return fromConnector(tool, connector_id)
  const { secret, env } = await opened(tool).catch((error: unknown) => {
    throw failed(
      'secret_unreadable',
      'The stored secret cannot be read',
      'Give the tool its secret again',
      error,
    )
  })
  const secrets = Object.values(env)
  if (secret === null) return { headers: {}, secrets }
  needForm(type, secret)
  const header = headerOf(type, name, secret)
  return { headers: Object.fromEntries([header]), secrets: [...secrets, ...formsOf(type, secret)] }
}

function headerOf(type: Definition['auth']['type'], name: string | null, secret: string): [string, string] {
  if (type === 'header') return [name ?? '', secret]
  if (type === 'basic') return ['authorization', `Basic ${Buffer.from(secret).toString('base64')}`]
  return ['authorization', `Bearer ${secret}`]
}

const formsOf = (type: Definition['auth']['type'], secret: string): string[] =>
  type === 'basic' ? [secret, secret.slice(secret.indexOf(':') + 1)] : [secret]

/** What goes with every request to a provider and is no credential: the client of the protocol sets it. */
const usual = new Set(['accept', 'user-agent', 'content-type'])

async function fromConnector(tool: ToolDocument, id: string): Promise<OpenCredential> {
  const credential = await secretOf(tool.tenant_id, id).catch((error: unknown) => {
    if (!(error instanceof Problem)) throw error
    throw failed(error.code, error.message, 'Connect the connector again, or give the tool another one')
  })
  if (URL.parse(credential.base_url)?.origin !== originOf(definition(tool)))
    throw new ProbeFailed({
      stage: 'policy',
      reason: 'other_origin',
      cause: 'The connector is for another origin than the tool',
      remedy: 'Give the tool a connector of its own server',
    })
  const headers = Object.fromEntries(
    Object.entries(credential.headers).filter(([name]) => !usual.has(name.toLowerCase())),
  )
  const secrets = Object.values(headers).map((value) => value.replace(/^\w+ /, ''))
  return { headers, secrets }
}

const placeholders =
  /^(<.*>|\{.*\}|\$\{?\w+\}?|x{3,}|\*+|\.{3,}|(your|my)[-_ ]?.*(key|token|secret)|changeme|todo)$/i

/** Throws ProbeFailed if the secret cannot be one of its type. */
function needForm(type: Definition['auth']['type'], secret: string): void {
  if (secret !== secret.trim())
    throw failed('secret_malformed', 'The secret begins or ends with a space', 'Give it without the space')
  if (placeholders.test(secret))
    throw failed('secret_is_placeholder', 'The secret is a placeholder', 'Give the tool its real secret')
  if (type === 'basic') return needBasic(secret)
  if (!/^[\x20-\x7e]+$/.test(secret))
    throw failed('secret_malformed', 'The secret has characters that a header cannot have', 'Copy it again')
  if (type === 'bearer') needBearer(secret)
}

function needBasic(secret: string): void {
  if (/^basic /i.test(secret) || !/^[^:]+:/.test(secret))
    throw failed(
      'secret_malformed',
      'The secret is not of the form user:password',
      'Give it as user:password, without encoding',
    )
}

function needBearer(secret: string): void {
  if (/^bearer /i.test(secret))
    throw failed('secret_malformed', 'The secret begins with the word Bearer', 'Give the token alone')
  if (!/^[\w\-.~+/:=|]+$/.test(secret))
    throw failed('secret_malformed', 'The secret has characters that no bearer token has', 'Copy it again')
  const ended = endOfJwt(secret)
  if (ended !== null && ended.getTime() <= Date.now())
    throw failed(
      'secret_expired',
      `The token expired at ${ended.toISOString()}`,
      'Give the tool a new token, or connect it with a connector, which renews them',
    )
}

/** When a JWT says that it ends. Null: it is none, or does not say. */
function endOfJwt(token: string): Date | null {
  const [, payload = '', ...more] = token.split('.')
  if (more.length !== 1) return null
  try {
    const { exp } = JSON.parse(Buffer.from(payload, 'base64url').toString()) as { exp?: unknown }
    const end = typeof exp === 'number' ? new Date(exp * 1000) : null
    return end && !Number.isNaN(end.getTime()) ? end : null
  } catch {
    return null
  }
}

const failed = (reason: string, cause: string, remedy: string, error?: unknown): ProbeFailed =>
  new ProbeFailed({ stage: 'credential', reason, cause, remedy }, error === undefined ? {} : { cause: error })
