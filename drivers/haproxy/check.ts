import { writeFile } from 'node:fs/promises'
import { EngineRefused } from '../errors.ts'
import type { RouteSpec } from '../load-balancers.ts'
import { run, stderrOf } from '../system/programs.ts'
import { type AcceptedRoutes, hashOf } from './accepted-routes.ts'
import { type Document, type Draft, type Refusal, writeDocument } from './document.ts'
import type { Place } from './places.ts'
import { haproxy } from './processes.ts'
import { type Backend, backendsOf as writeBackends } from './routes.ts'

// HAProxy's own check of a configuration, before it replaces the one that runs.

/** A thousand routes take a second on a busy machine. */
const checkedWithinMs = 60_000
/** Each round leaves out the routes that the round before refused. */
const mostRounds = 20

/** The routes that HAProxy refuses, with its reasons; none if it accepts the document. Throws EngineRefused. */
async function refusedBy(place: Place, document: Document): Promise<Refusal[]> {
  await writeCandidate(place, document)
  try {
    await run(haproxy, ['-c', '-f', place.candidate], {
      signal: AbortSignal.timeout(checkedWithinMs),
    })
    return []
  } catch (error) {
    const found = readRefusals(stderrOf(error), document)
    if (found.size === 0) throw new EngineRefused('The load balancer’s configuration was refused', error)
    return [...found].map(([route_id, reason]) => ({ route_id, reason: plain(reason, place) }))
  }
}

/** By route, the first reason. HAProxy names a line, or else a section. */
function readRefusals(said: string, document: Document): Map<string, string> {
  const found = new Map<string, string>()
  for (const message of said.split('\n').filter((line) => line.startsWith('[ALERT]'))) {
    const [, line, reason] = / : parsing \[[^\]]*:(\d+)\][ :]*(.*)$/.exec(message) ?? []
    const [, section, more] = /'[rgt]-([A-Za-z0-9-]+)'?[ :]*(.*)$/.exec(message) ?? []
    const route =
      document.routeAt(Number(line)) ?? [...document.routes.keys()].find(({ id }) => id === section)?.id
    if (route !== undefined && !found.has(route)) found.set(route, reason ?? more ?? '')
  }
  return found
}

const longestReason = 300
/** Without paths of the host. */
const plain = (reason: string, { folder }: Place): string =>
  reason
    .replaceAll(`${folder}/`, '')
    .replaceAll(/[^\x20-\x7e]/g, ' ')
    .slice(0, longestReason)
    .trim()

/**
 * Writes the document to the candidate's file, again and again without the routes that HAProxy refuses, until it
 * accepts. It checks the routes that it has not accepted before, with everything that is no route.
 */
export async function accepted(
  draft: Omit<Draft, 'refused' | 'backendsOf'>,
  known: AcceptedRoutes,
): Promise<Document> {
  const { spec, place, secrets } = draft
  const around = hashOf([spec.listeners, spec.health_check, secrets])
  const refused: Refusal[] = []
  const backendsOf = (route: RouteSpec): Backend[] =>
    known.find(around, route) ?? writeBackends(spec, route, place)
  for (let round = 0; round < mostRounds; round++) {
    const document = writeDocument({ ...draft, refused, backendsOf })
    const routes = [...document.routes.keys()].filter((route) => !known.find(around, route))
    const isWhole = routes.length === document.routes.size
    const checked = isWhole
      ? document
      : writeDocument({ ...draft, spec: { ...spec, routes }, refused, backendsOf })
    const more = await refusedBy(place, checked)
    if (more.length === 0) {
      if (!isWhole) await writeCandidate(place, document)
      known.take(around, document.routes)
      return document
    }
    refused.push(...more)
  }
  throw new EngineRefused('The load balancer’s configuration was refused')
}

const writeCandidate = (place: Place, { text }: Document): Promise<void> =>
  writeFile(place.candidate, text, { mode: 0o600 })
