import { text } from 'node:stream/consumers'
import { cancellationSignal } from '@temporalio/activity'
import { EngineError } from '../../drivers/errors.ts'
import type { InstanceEngine } from '../../drivers/instances.ts'
import { probeStdio } from '../../lib/mcp-stdio.ts'
import { type Fault, ProbeFailed, Stages } from '../../lib/probe-stages.ts'
import { makeRedactor } from '../../lib/redact.ts'
import type { ToolCommand, ToolFinding } from '../../lib/tool-protocol.ts'
import { again, mayPass } from './patience.ts'

interface Parts {
  engine: Pick<InstanceEngine, 'pipe'>
  /** The command of a probe. Asked for here, so that its secrets never pass through Temporal. */
  command: (probeId: string) => Promise<ToolCommand>
}

// What the command writes to its errors would end the stream. Variables and words are arguments, not part of the script.
const run = 'exec 2>/tmp/.keelson-errors; exec env "$@"'
const errors = 'tail -c 400 /tmp/.keelson-errors | tail -n 3'

/** The API is asked again after these times: the step is tried once, and the command has not run yet. */
const waitsMs = [200, 1_000, 2_000, 5_000, 10_000, 15_000, 15_000]

/** The activity of a host with microVMs that asks a server of stdio for its tools. */
export const makeToolProbesOnHost = ({ engine, command: commandOf }: Parts) => ({
  /** Finds also why a server has no list. Fails only if the API or the microVM cannot be reached. */
  async probeToolOnHost(probeId: string, microvmId: string): Promise<ToolFinding> {
    const { command, args, env } = await again(() => commandOf(probeId), {
      signal: cancellationSignal(),
      waits: waitsMs,
      passes: mayPass,
    })
    const variables = Object.entries(env).map(([name, value]) => `${name}=${value}`)
    const stages = new Stages()
    const words = ['sh', '-c', run, 'sh', ...variables, command, ...args]
    const stream = await engine.pipe(microvmId, words)
    const said = async (): Promise<string> => {
      const looking = await engine.pipe(microvmId, ['sh', '-c', errors])
      looking.end()
      return text(looking)
    }
    const redact = makeRedactor(Object.values(env))
    const found = await probeStdio({ stream, said, redact }, stages).then(
      (listing) => ({ listing: { ...listing, transport: 'stdio' as const }, fault: null }),
      (error: unknown) => ({ listing: null, fault: faultOf(error) }),
    )
    return { ...found, spent_ms: { initialize: stages.spent('initialize'), list: stages.spent('list') } }
  },
})

function faultOf(error: unknown): Fault {
  if (error instanceof ProbeFailed && !(error.cause instanceof EngineError)) return error.fault
  throw error
}
