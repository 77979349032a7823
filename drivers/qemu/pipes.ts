import { randomUUID } from 'node:crypto'
import type { Duplex } from 'node:stream'
import { EngineUnavailable } from '../errors.ts'
import { type Agent, asMachineFault } from './agent.ts'
import { SessionStream } from './session-stream.ts'

/** Runs a command in the machine, with its input and output as one stream. See MachineConsole.pipe. */
export async function openMachinePipe(agent: Agent, command: string[]): Promise<Duplex> {
  const id = randomUUID()
  const stream = new PipeStream(agent, id)
  // It may break before or after it has a reader; an error that nobody hears would end the process.
  stream.on('error', () => {})
  agent.listen(id, {
    onOutput: (data) => stream.deliver(data),
    onErrors: (data) => stream.destroy(broken(data.toString('utf8').slice(0, 500).trim())),
    onAck: (bytes) => stream.acknowledged(bytes),
    onExit: () => stream.commandEnded(),
    onLost: () => stream.destroy(broken('the machine disconnected')),
  })
  try {
    await agent.ask('exec', { argv: command, pipe: true }, { session: id })
  } catch (error) {
    stream.destroy()
    throw asMachineFault(error)
  }
  return stream
}

/** Its command's input ends when it is ended. To destroy it ends the input as well. */
class PipeStream extends SessionStream {
  override _final(done: () => void): void {
    this.agent.tell('eof', null, this.id)
    done()
  }
}

const broken = (because: string): EngineUnavailable =>
  new EngineUnavailable('The connection into the machine broke', new Error(because))
