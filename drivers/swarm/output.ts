import { text } from 'node:stream/consumers'
import type { PipeMachine } from '../swarms.ts'

/** Runs a command without input in a machine. Returns what it wrote. */
export async function outputOf(pipe: PipeMachine, machineId: string, command: string[]): Promise<string> {
  const stream = await pipe(machineId, command)
  stream.end()
  return text(stream)
}
