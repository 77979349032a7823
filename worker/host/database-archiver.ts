import { setTimeout as delay } from 'node:timers/promises'
import { buffer } from 'node:stream/consumers'
import { storedSegment } from '../../activities/host/backup-segments.ts'
import type { ContainerScripts } from '../../drivers/copies.ts'
import { EngineUnavailable } from '../../drivers/errors.ts'
import type { TaskCommands } from '../../drivers/swarms.ts'
import { type DatabaseArchivesOnHost, segmentBytes } from '../../lib/archive-protocol.ts'
import type { Logger } from '../../lib/log.ts'
import { makeQueue, mapAtOnce } from '../../lib/queue.ts'
import type { InternalApi } from './internal-api.ts'

interface Parts {
  commands: Pick<TaskCommands, 'run'>
  scripts: Pick<ContainerScripts, 'open'>
  /** The label of the containers of services. */
  serviceLabel: string
  /** The machines that run on this host. */
  machines: () => string[]
  api: InternalApi['archives']
  everyMs: number
  log: Logger
}

type Wanted = DatabaseArchivesOnHost['databases'][number]
type Archive = NonNullable<Wanted['archive']>

// Each has a segment in memory.
const databasesAtOnce = 2
const answersWithinSec = 60
/** A database with this many segments is asked again at once. */
const isBusyFrom = 8

/** What an engine has said (EngineArchive.look). */
type Said =
  | { state: 'lost' }
  | { state: 'gap'; segment: string }
  | { state: 'idle'; at: string }
  | { state: 'segments'; segments: { name: string; ticked_at: string | null }[] }

/**
 * Stores what the databases on this host have added to their logs, and brings their volumes to the archives that they are
 * to have. What is stored twice stays once, so that nothing has to be remembered here.
 */
export function makeDatabaseArchiver({
  commands,
  scripts,
  serviceLabel,
  machines,
  api,
  everyMs,
  log,
}: Parts) {
  let now: DatabaseArchivesOnHost = { version: '', databases: [] }
  let version: string | null = null
  /** The databases whose volumes are known to have no archive. */
  const closed = new Set<string>()
  const inTurn = makeQueue()

  async function fetchWanted(): Promise<void> {
    now = await api.wanted()
    // A container that has started anew may have the volume of another time.
    if (version !== now.version) closed.clear()
    version = now.version
  }

  async function run({ id, machine_id }: Wanted, command: string, env: Record<string, string> = {}) {
    const asked = { command, mark: `archive-${id}`, timeoutSec: answersWithinSec, env }
    const { exit_code, output } = await commands.run(machine_id, id, asked)
    if (exit_code !== 0) throw new EngineUnavailable(output.trim().split('\n').at(-1)?.slice(0, 300) ?? '')
    return output
  }

  async function bring(wanted: Wanted): Promise<void> {
    const { id, deploy_server_id, archive, scripts: its } = wanted
    if (!archive) {
      if (closed.has(id)) return
      await run(wanted, its.close)
      closed.add(id)
      return
    }
    if (!archive.is_open) {
      await run(wanted, its.open, { KEELSON_ARCHIVE: archive.id })
      await api.report(deploy_server_id, archive.id, { state: 'opened' })
      return
    }
    while (await store(wanted, archive)) {}
  }

  /** Returns whether there may soon be more. */
  async function store(wanted: Wanted, archive: Archive): Promise<boolean> {
    const { deploy_server_id, scripts: its } = wanted
    const said = saidIn(await run(wanted, its.look, { KEELSON_ARCHIVE: archive.id }))
    if (said.state !== 'segments') {
      await api.report(deploy_server_id, archive.id, said)
      return false
    }
    const stored: string[] = []
    try {
      for (const { name, ticked_at } of said.segments) {
        const sealed = await storedSegment(archive, name, await read(wanted, name))
        const place = { name, ...(ticked_at === null ? {} : { ticked_at }) }
        await api.keep(deploy_server_id, archive.id, place, sealed)
        stored.push(name)
      }
    } finally {
      if (stored.length) await run(wanted, its.forget, { KEELSON_SEGMENTS: stored.join(' ') })
    }
    return stored.length >= isBusyFrom
  }

  async function read({ id, machine_id, scripts: its }: Wanted, name: string): Promise<Buffer> {
    const container = { machine_id, label: { name: serviceLabel, value: id } }
    const script = `KEELSON_SEGMENT=${name}\n${its.read}`
    const { stream, ended } = await scripts.open(container, script, `segment-${id}`)
    stream.end()
    const plain = await buffer(stream)
    const { exit_code, errors } = await ended()
    if (exit_code !== 0 || plain.length !== segmentBytes)
      throw new EngineUnavailable(`The segment ${name} could not be read: ${errors.slice(-300)}`)
    return plain
  }

  /** Looks at each database once. */
  async function look(): Promise<void> {
    // Whether one is open is known only to the platform: to open it again would empty it.
    if (version === null || now.databases.some(({ archive }) => archive && !archive.is_open))
      await fetchWanted()
    const running = new Set(machines())
    const here = now.databases.filter(({ machine_id }) => running.has(machine_id))
    await mapAtOnce(here, databasesAtOnce, (one) =>
      bring(one).catch((err: unknown) =>
        log.debug({ err, id: one.id }, 'the log of a database was not archived'),
      ),
    )
  }

  return {
    version: (): string | null => version,

    apply: (): Promise<void> => inTurn(fetchWanted),

    /** Looks at all of them again and again, until aborted. */
    async keep(signal: AbortSignal): Promise<void> {
      while (!signal.aborted) {
        await inTurn(look).catch((err: unknown) =>
          log.warn({ err }, 'the logs of databases were not archived'),
        )
        await delay(everyMs, undefined, { signal }).catch(() => undefined)
      }
    },
  }
}

/** Reads what a look has printed. Nothing is said while segments are only on their way into the spool. */
export function saidIn(output: string): Said {
  const lines = output.split('\n').map((line) => line.trim().split(' '))
  const [state, value = ''] =
    lines.find(([word]) => word === 'lost' || word === 'gap' || word === 'idle') ?? []
  if (state === 'lost') return { state }
  if (state === 'gap') return { state, segment: value }
  if (state === 'idle') return { state, at: value }
  const segments = lines.flatMap(([word, name = '', tick]) =>
    word === 'segment' && /^[0-9A-F]{24}$/.test(name)
      ? [{ name, ticked_at: tick && tick !== '-' ? tick : null }]
      : [],
  )
  return { state: 'segments', segments }
}
