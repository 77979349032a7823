import type { Duplex } from 'node:stream'
import { setTimeout as delay } from 'node:timers/promises'
import type Docker from 'dockerode'
import { v4 as newMark } from 'uuid'
import type { Terminal, TerminalSize } from '../containers.ts'
import { asking, statusOf, unless } from './errors.ts'
import { EngineRefused, InstanceNotRunning } from '../errors.ts'

// This variable identifies the command among the container's processes: the engine reports only its host pid, and this
// process may not see host pids.
const markName = 'KEELSON_CONSOLE'

// The engine opens the connection before the process exists. Until then, resize and close have no target.
const attempts = 20
const pauseMs = 100

// What ends a command runs in its container, and takes a second there; a tenant's own /bin/sh may never end.
const scriptEndsMs = 5_000
// On a busy machine some seconds pass until a command that is starting can be ended.
const closesWithinMs = 30_000

/** Runs a command with a terminal in the container with this engine id. Throws InstanceNotRunning. */
export async function openTerminal(
  docker: Docker,
  { id, engineId }: { id: string; engineId: string },
  command: string[],
  size: TerminalSize,
): Promise<Terminal> {
  const container = docker.getContainer(engineId)
  const mark = newMark()
  const attached = { Tty: true, AttachStdin: true, AttachStdout: true, AttachStderr: true }
  const notRunning = (error: unknown): never => {
    throw statusOf(error) === 409 ? new InstanceNotRunning(id, error) : error
  }
  const env = ['TERM=xterm-256color', `${markName}=${mark}`]
  const options = { Cmd: command, Env: env, ...attached }
  const exec = await container.exec(options).catch(notRunning)
  const stream: Duplex = await exec.start({ hijack: true, stdin: true, Tty: true }).catch(notRunning)

  const terminal: Terminal = {
    stream,

    resize: ({ cols, rows }) =>
      asking(async () => {
        for (let attempt = 1; ; attempt++) {
          try {
            await exec.resize({ h: rows, w: cols })
            return
          } catch (error) {
            if (attempt === attempts) throw error
            if ((await lookAt(exec))?.ended !== false) return
          }
          await delay(pauseMs)
        }
      }),

    exitCode: () =>
      asking(async () => {
        const { ExitCode } = await exec.inspect()
        return ExitCode ?? 137 // the container was killed before the engine had noted it
      }),

    close: () =>
      asking(async () => {
        stream.destroy()
        // A command that is starting counts as running for the engine, but has no mark yet.
        const late = performance.now() + closesWithinMs
        while (performance.now() < late) {
          const now = await lookAt(exec)
          if (!now || now.ended) return
          if (now.running)
            await unless([404, 409], runScript(container, hangUpScript, `${markName}=${mark}`, scriptEndsMs))
          await delay(pauseMs)
        }
        throw new EngineRefused(
          'The command could not be ended: its image has no working /bin/sh, or it runs as another user',
        )
      }),
  }
  try {
    // The engine accepts a size at start, but does not apply it to the terminal.
    await terminal.resize(size)
  } catch (error) {
    await terminal.close().catch(() => {}) // the engine is away
    throw error
  }
  return terminal
}

/** Null if the container is gone. Neither running nor ended means about to start. */
export async function lookAt(exec: Docker.Exec): Promise<{ running: boolean; ended: boolean } | null> {
  const info = await unless([404], exec.inspect())
  return info ? { running: info.Running, ended: !info.Running && info.ExitCode !== null } : null
}

/**
 * The engine cannot end a command, and keeps its terminal open without a client. So another command ends it from
 * inside: it finds the process with the mark and a parent outside the container, then ends its whole session. The
 * script uses only shell built-ins and `sleep`.
 */
const hangUpScript = `
leader=
for dir in /proc/[0-9]*; do
  while read -r line || [ -n "$line" ]; do
    case $line in *"$1"*)
      read -r stat <"$dir/stat"
      set -- "$1" \${stat##*) }
      [ "$3" = 0 ] && leader=\${dir#/proc/}
    esac
  done <"$dir/environ"
done 2>/dev/null
[ -n "$leader" ] || exit 0
signal() {
  for dir in /proc/[0-9]*; do
    read -r stat <"$dir/stat" || continue
    how=$1
    set -- \${stat##*) }
    [ "$4" = "$leader" ] && kill "-$how" "\${dir#/proc/}"
    set -- "$how"
  done 2>/dev/null
}
signal HUP
sleep 1 2>/dev/null
signal KILL
exit 0
`

/**
 * Runs a script with one argument in a container, as the container's user. Needs /bin/sh in the image. Gives up after
 * `withinMs`.
 */
export async function runScript(
  container: Docker.Container,
  script: string,
  argument: string,
  withinMs: number,
): Promise<void> {
  const exec = await container.exec({
    Cmd: ['/bin/sh', '-c', script, 'sh', argument],
    AttachStdout: true,
    AttachStderr: true,
  })
  const output = await exec.start({})
  output.resume()
  const late = setTimeout(() => output.destroy(), withinMs)
  await new Promise((resolve) => output.once('close', resolve))
  clearTimeout(late)
}
