import { once } from 'node:events'
import { Writable } from 'node:stream'
import { finished } from 'node:stream/promises'
import { setTimeout as delay } from 'node:timers/promises'
import type Docker from 'dockerode'
import { asking, unless } from '../docker/errors.ts'
import { lookAt } from '../docker/exec.ts'
import { endMarked } from '../docker/marked.ts'
import { InstanceNotRunning } from '../errors.ts'
import type { DialMachine, TaskCommands } from '../swarms.ts'
import { engineOf, withEngine } from './dial.ts'
import { serviceLabel } from './services.ts'

const keptBytes = 32 * 1024
// As for a console: on a busy machine some seconds pass until a command that is starting has its mark.
const endsWithinMs = 20_000
const pauseMs = 100

/** Names a run in the environment of its processes. */
export const markName = 'KEELSON_RUN'

/** If the container's memory runs out, the kernel ends this script and not the service. */
export const endedFirst = (script: string): string =>
  `{ echo 1000 >/proc/self/oom_score_adj; } 2>/dev/null\n${script}`

/** Runs commands in the tasks of services. */
export function makeTaskCommands(dial: DialMachine): TaskCommands {
  const at = (machineId: string): Docker => engineOf<Docker>(dial, machineId)

  const end: TaskCommands['end'] = (machineId, serviceId, mark) =>
    asking(async () => {
      for (const container of await running(at(machineId), serviceId))
        await unless([404, 409], endMarked(container, `${markName}=${mark}`))
    })

  return {
    end,

    runs: (machineId, serviceId) =>
      asking(() =>
        withEngine(dial, machineId, async (docker: Docker) => (await running(docker, serviceId)).length > 0),
      ),

    run: (machineId, serviceId, { command, mark, timeoutSec, env = {} }, signal) =>
      asking(
        () =>
          withEngine(dial, machineId, async (docker: Docker) => {
            const [container] = await running(docker, serviceId)
            if (!container) throw new InstanceNotRunning(serviceId)
            const exec = await container.exec({
              Cmd: ['/bin/sh', '-c', endedFirst(command)],
              Env: Object.entries({ ...env, [markName]: mark }).map(([name, value]) => `${name}=${value}`),
              AttachStdout: true,
              AttachStderr: true,
            })
            signal?.throwIfAborted()
            const output = new LastBytes(keptBytes)
            const stream = await at(machineId).getExec(exec.id).start({}) // it keeps its stream
            container.modem.demuxStream(stream, output, output)
            const late = AbortSignal.timeout(timeoutSec * 1000)
            const stopping = AbortSignal.any(signal ? [signal, late] : [late])
            const finish = finished(stream)
            const stop = async (): Promise<void> => {
              if (!stopping.aborted) await once(stopping, 'abort')
              await untilEnded(exec, () => end(machineId, serviceId, mark))
            }
            const stopped = stop()
            await Promise.race([finish, stopped])
            if (stopping.aborted) await stopped // what it started may end later than itself
            stream.destroy()
            signal?.throwIfAborted()
            const { ExitCode } = await exec.inspect()
            return { exit_code: ExitCode ?? null, output: output.text(), timed_out: late.aborted }
          }),
        signal,
      ),
  }
}

/**
 * Ends a command again and again until the engine says that it has ended: one that is starting has no mark yet. A command
 * that cannot be ended is not waited for.
 */
async function untilEnded(exec: Docker.Exec, end: () => Promise<void>): Promise<void> {
  const late = performance.now() + endsWithinMs
  while (performance.now() < late) {
    // Asked before: what the command started last is ended too.
    const now = await lookAt(exec)
    await end()
    if (!now || now.ended) return
    await delay(pauseMs)
  }
}

/** Keeps the end of what is written. */
class LastBytes extends Writable {
  #kept: Buffer = Buffer.alloc(0)
  readonly #most: number

  constructor(most: number) {
    super()
    this.#most = most
  }

  override _write(chunk: Buffer, _: string, done: () => void): void {
    this.#kept = Buffer.concat([this.#kept, chunk]).subarray(-this.#most)
    done()
  }

  text(): string {
    return this.#kept.toString()
  }
}

async function running(docker: Docker, serviceId: string): Promise<Docker.Container[]> {
  const filters = { label: [`${serviceLabel}=${serviceId}`], status: ['running'] }
  return (await docker.listContainers({ filters })).map(({ Id }) => docker.getContainer(Id))
}
