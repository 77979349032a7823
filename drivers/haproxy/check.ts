import { writeFile } from 'node:fs/promises'
import { EngineRefused } from '../errors.ts'
import { run, stderrOf } from '../system/programs.ts'
import type { Document, Refusal } from './document.ts'
import type { Place } from './places.ts'
import { haproxy } from './processes.ts'

// HAProxy's own check of a configuration, before it replaces the one that runs.

/** A thousand routes take a second on a busy machine. */
const checkedWithinMs = 60_000
/** Each round leaves out the routes that the round before refused. */
const mostRounds = 20

/** The routes that HAProxy refuses, with its reasons; none if it accepts the document. Throws EngineRefused. */
async function refusedBy(place: Place, document: Document): Promise<Refusal[]> {
  await writeFile(place.candidate, document.text, { mode: 0o600 })
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
    const route = document.routeAt(Number(line)) ?? document.routes.find(({ id }) => id === section)?.id
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

/** Writes the document again and again without the routes that HAProxy refuses, until it accepts. */
export async function accepted(place: Place, write: (refused: Refusal[]) => Document): Promise<Document> {
  const refused: Refusal[] = []
  for (let round = 0; round < mostRounds; round++) {
    const document = write(refused)
    const more = await refusedBy(place, document)
    if (more.length === 0) return document
    refused.push(...more)
  }
  throw new EngineRefused('The load balancer’s configuration was refused')
}
