import { readFile, writeFile } from 'node:fs/promises'
import { EngineRefused } from '../errors.ts'
import type { LeftOut, RouteSpec } from '../load-balancers.ts'
import { nullIfMissing } from '../system/files.ts'
import { run, stderrOf } from '../system/programs.ts'
import { type AcceptedRoutes, hashOf } from './accepted-routes.ts'
import {
  type Certificates,
  certificatesOf,
  isIn,
  secretFiles,
  secretIn,
  writeSecrets,
} from './certificates.ts'
import { type Document, type Draft, writeDocument } from './document.ts'
import type { Place } from './places.ts'
import { haproxy } from './processes.ts'
import { type Backend, backendsOf as writeBackends } from './routes.ts'

// HAProxy's own check of a configuration, before it replaces the one that runs.

/** A thousand routes take a second on a busy machine. */
const checkedWithinMs = 60_000
/** Each round leaves out the routes that the round before refused. */
const mostRounds = 20

/** What HAProxy refuses, with its reasons; nothing if it accepts the document. Throws EngineRefused. */
async function refusedBy(place: Place, document: Document): Promise<Refused> {
  await writeCandidate(place, document)
  try {
    await run(haproxy, ['-c', '-f', place.candidate], {
      signal: AbortSignal.timeout(checkedWithinMs),
    })
    return nothing
  } catch (error) {
    const found = readRefusals(stderrOf(error), document, place)
    if (isNothing(found)) throw new EngineRefused('The load balancer’s configuration was refused', error)
    return found
  }
}

type Refused = Pick<Document, 'refused' | 'left_out'>
const nothing: Refused = { refused: [], left_out: [] }
const isNothing = ({ refused, left_out }: Refused): boolean => refused.length + left_out.length === 0

/** Each with the first reason. HAProxy names a file, a line, or a section. */
function readRefusals(said: string, document: Document, place: Place): Refused {
  const found = structuredClone(nothing)
  for (const message of said.split('\n').filter((line) => line.startsWith('[ALERT]'))) {
    const [, text = message] = / : (?:parsing )?\[[^\]]*\][ :]*(.*)$/.exec(message) ?? []
    const reason = plain(text, place)
    const refused = whatIs(message, document)
    if (!refused) continue
    const { kind, id } = refused
    if (kind !== 'route') {
      if (!isIn(found.left_out, kind, id)) found.left_out.push({ kind, id, reason })
    } else if (!found.refused.some(({ route_id }) => route_id === id))
      found.refused.push({ route_id: id, reason })
  }
  return found
}

/** What a message is about. A file comes first: the line that names it is right. */
function whatIs(
  message: string,
  { text, routeAt, routes }: Document,
): { kind: 'route' | LeftOut['kind']; id: string } | null {
  const secret = secretIn(message)
  if (secret) return secret
  const line = Number(/\[[^\]]*\.cfg:(\d+)\]/.exec(message)?.[1])
  const [, section] = /'[rgt]-([A-Za-z0-9-]+)/.exec(message) ?? []
  const route = routeAt(line) ?? [...routes.keys()].find(({ id }) => id === section)?.id
  if (route !== undefined) return { kind: 'route', id: route }
  const head = text
    .split('\n')
    .slice(0, line || 0)
    .findLast((one) => !one.startsWith(' '))
  const [, port] = /^frontend l-(\d+)/.exec(head ?? '') ?? /'l-(\d+)'/.exec(message) ?? []
  return port === undefined ? null : { kind: 'listener', id: port }
}

const longestReason = 300
/** Without paths of the host. */
const plain = (reason: string, { folder }: Place): string =>
  reason
    .replaceAll(`${folder}/`, '')
    .replaceAll(/[^\x20-\x7e]/g, ' ')
    .slice(0, longestReason)
    .trim()

export interface AcceptedDocument extends Document {
  /** The files beside it, by path. They are written. */
  files: Map<string, string>
}

/**
 * Writes the document to the candidate's file, with the files beside it, again and again without what HAProxy refuses,
 * until it accepts. It checks the routes that it has not accepted before, with everything that is no route.
 */
export async function accepted(
  draft: Omit<Draft, keyof Refused | 'secrets' | 'lists' | 'backendsOf'>,
  known: AcceptedRoutes,
): Promise<AcceptedDocument> {
  const { spec, place } = draft
  const left: Refused = structuredClone(nothing)
  const former = await certificatesOf(
    place,
    (await readFile(place.config, 'utf8').catch(nullIfMissing)) ?? '',
  )
  for (let round = 0; round < mostRounds; round++) {
    const { files, lists } = secretFiles(spec, place, left.left_out, former)
    await writeSecrets(place, files)
    const secrets = hashOf([...files])
    const around = hashOf([spec.listeners, spec.health_check, secrets])
    const usable = spec.ca_trusts.filter(({ id }) => !isIn(left.left_out, 'ca_trust', id))
    const backendsOf = (route: RouteSpec): Backend[] =>
      known.find(around, route) ?? writeBackends({ ...spec, ca_trusts: usable }, route, place)
    const whole = { ...draft, ...left, secrets, lists, backendsOf }
    const document = writeDocument(whole)
    const routes = [...document.routes.keys()].filter((route) => !known.find(around, route))
    const isWhole = routes.length === document.routes.size
    const checked = isWhole ? document : writeDocument({ ...whole, spec: { ...spec, routes } })
    const more = await refusedBy(place, checked)
    if (isNothing(more)) {
      if (!isWhole) await writeCandidate(place, document)
      known.take(around, document.routes)
      return { ...document, files, left_out: document.left_out.map((one) => withFormer(one, former, files)) }
    }
    left.refused.push(...more.refused)
    left.left_out.push(...more.left_out)
  }
  throw new EngineRefused('The load balancer’s configuration was refused')
}

const withFormer = (one: LeftOut, former: Certificates, files: Map<string, string>): LeftOut =>
  one.kind === 'certificate' && files.has(former.get(one.id)?.path ?? '')
    ? { ...one, reason: `${one.reason}; the previous one is still used` }
    : one

const writeCandidate = (place: Place, { text }: Document): Promise<void> =>
  writeFile(place.candidate, text, { mode: 0o600 })
