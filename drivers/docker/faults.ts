import type Docker from 'dockerode'
import type { ContainerInspectInfo } from 'dockerode'
import { readLogs } from './logs.ts'
import { CommandFailed } from '../errors.ts'

const lastLines = 5
const lastChars = 500

/** Explains why a command ended at once, with its last output. */
export async function commandFault(
  docker: Docker,
  info: ContainerInspectInfo,
  code: number,
): Promise<CommandFailed> {
  const { OOMKilled } = info.State
  const lines: string[] = []
  for await (const { line } of readLogs(docker, info.Id, { lines: lastLines })) lines.push(line)
  const words = lines.join('\n').slice(-lastChars).trim()

  // tini prints this if it cannot start the command.
  const [, reason] = /\[FATAL tini \(\d+\)\] (.*)/.exec(words) ?? []
  if (reason)
    return new CommandFailed('command_not_started', `The command could not be started: ${reason}`, code)

  const why = OOMKilled ? ', for lack of memory' : ''
  const message = `The command ended at once with exit code ${code}${why}${words ? `: ${words}` : ''}`
  return new CommandFailed('exited_at_once', message, code)
}
