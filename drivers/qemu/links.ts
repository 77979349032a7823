import type { Duplex } from 'node:stream'
import { EngineUnavailable } from '../errors.ts'
import type { Ending } from '../machines.ts'
import { Agent } from './agent.ts'
import { MachineConsole } from './console.ts'
import { LogWriter } from './logs.ts'
import { type CommandStatus, isBefore } from './messages.ts'
import type { MachinePlace } from './places.ts'
import type { MachineRecord } from './records.ts'
import { serialLines } from './serial-log.ts'
import { Qmp } from '../system/qmp.ts'

/** By QEMU's shutdown reason. Shutdowns requested by the host are not included. */
const endings: Record<string, Ending> = {
  'guest-shutdown': 'shut_down',
  'guest-reset': 'restarted',
  'guest-panic': 'panicked',
  'host-signal': 'killed',
}

export interface LinkListener {
  onStatus(status: CommandStatus): void
  /** QEMU is about to end, with the reason. */
  onEnding(how: Ending): void
  /** QEMU has stopped the machine, since a write found no room. Called once until `full` is empty again. */
  onFull(): void
  /** QEMU has ended. */
  onGone(): void
}

/** This process's connections to a running machine: monitor, agent, console and log files. */
export class Link {
  readonly monitor: Qmp
  readonly agent: Agent
  readonly logs: LogWriter
  /** The nodes of the disks whose writes found no room, for which QEMU has stopped the machine. */
  readonly full = new Set<string>()
  /** How often it has. */
  stops = 0
  #status: CommandStatus | null = null
  readonly #console: MachineConsole
  readonly #closed = Promise.withResolvers<void>()
  #isClosed = false

  private constructor(monitor: Qmp, agent: Agent, console: MachineConsole, logs: LogWriter) {
    this.monitor = monitor
    this.agent = agent
    this.#console = console
    this.logs = logs
  }

  /** Throws EngineUnavailable. */
  static async open(
    place: MachinePlace,
    record: MachineRecord,
    backlogMib: number,
    listener: LinkListener,
  ): Promise<Link> {
    const monitor = await Qmp.connect(place.monitor)
    const logs = new LogWriter(place, record, backlogMib)
    let link: Link | null = null
    try {
      const console = await MachineConsole.connect(place.console, lineWriter(record, logs))
      const agent = await Agent.connect(place.agent, {
        lastLine: () => logs.last,
        onLines: (lines) => logs.append(lines),
        onStatus(status) {
          link?.learn(status)
          listener.onStatus(status)
        },
      })
      const opened = new Link(monitor, agent, console, logs)
      monitor.onEvent(({ event, data }) => {
        const how = event === 'SHUTDOWN' ? endings[String(data['reason'])] : undefined
        if (how) listener.onEnding(how)
        if (event === 'BLOCK_IO_ERROR' && data['action'] === 'stop') {
          const isFirst = opened.full.size === 0
          opened.full.add(String(data['node-name']))
          opened.stops++
          if (isFirst) listener.onFull()
        }
      })
      link = opened
      monitor.closed.catch(() => {
        const isExpected = opened.#isClosed
        opened.close()
        if (!isExpected) listener.onGone()
      })
      return opened
    } catch (error) {
      monitor.close()
      logs.close()
      throw error
    }
  }

  get status(): CommandStatus | null {
    return this.#status
  }

  /** Answers and messages overtake each other: an older status is ignored. */
  learn(status: CommandStatus): void {
    if (!this.#status || !isBefore(status, this.#status)) this.#status = status
  }

  get isClosed(): boolean {
    return this.#isClosed
  }

  /** Resolves when the connection has closed. */
  get closed(): Promise<void> {
    return this.#closed.promise
  }

  console(): Duplex {
    return this.#console.view()
  }

  /** The last output on the serial console. */
  lastWords(): string {
    return this.#console.tail(500)
  }

  /** Waits until the agent answers. Throws EngineUnavailable, also if the machine ends before. */
  async answering(withinMs: number): Promise<Agent> {
    try {
      await Promise.race([this.agent.ready(withinMs), this.monitor.closed])
      return this.agent
    } catch (error) {
      throw new EngineUnavailable(
        'The machine does not answer',
        new Error(this.lastWords(), { cause: error }),
      )
    }
  }

  close(): void {
    if (this.#isClosed) return
    this.#isClosed = true
    this.#closed.resolve()
    this.agent.close()
    this.#console.close()
    this.monitor.close()
    this.logs.close()
  }
}

/** What to do with output on the serial line: a VM has no other. */
const lineWriter = ({ spec }: MachineRecord, logs: LogWriter): ((data: Buffer) => void) =>
  spec.kind === 'vm' ? serialLines((lines) => logs.addAll(lines)) : () => {}
