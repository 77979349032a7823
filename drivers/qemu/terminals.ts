import { randomUUID } from 'node:crypto'
import type { Terminal, TerminalSize } from '../containers.ts'
import { EngineUnavailable } from '../errors.ts'
import type { Agent } from './agent.ts'
import { SessionStream } from './session-stream.ts'

/** Runs a command in the machine, with a terminal. */
export async function openMachineTerminal(
  agent: Agent,
  command: string[],
  size: TerminalSize,
): Promise<Terminal> {
  const id = randomUUID()
  const stream = new SessionStream(agent, id)
  const exit = Promise.withResolvers<number>()
  exit.promise.catch(() => {})
  agent.listen(id, {
    onOutput: (data) => stream.deliver(data),
    onAck: (bytes) => stream.acknowledged(bytes),
    onExit(code) {
      exit.resolve(code)
      stream.commandEnded()
      stream.end()
    },
    onLost() {
      const lost = new EngineUnavailable('The machine disconnected')
      exit.reject(lost)
      stream.destroy()
    },
  })
  await agent.ask('exec', { argv: command, ...size }, { session: id })
  return {
    stream,
    resize: async ({ cols, rows }) => agent.tell('size', { cols, rows }, id),
    exitCode: () => exit.promise,
    close: async () => {
      agent.tell('hangup', null, id)
      stream.destroy()
    },
  }
}
