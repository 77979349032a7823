import type { Readable } from 'node:stream'
import { asking } from '../docker/errors.ts'
import { BuildFailed, EngineUnavailable, MachineDiskFull } from '../errors.ts'
import type { BuildOrder, ImageBuilds } from '../image-builds.ts'
import type { PipeMachine } from '../swarms.ts'
import { buildScript, endScript, holdTurn, prune, says, scratch } from './build-script.ts'
import { builtLabel } from './engine-images.ts'
import { outputOf } from './output.ts'

const timedOut = 124
const longestLine = 64 * 1024
/** The builder repeats each step's digest, which tells a reader nothing. */
const noise = /^#\d+ sha256:[0-9a-f]{64}( \S+ \/ .*)?$/

/** Builds by BuildKit in the engines of machines. */
export function makeImageBuilds(pipe: PipeMachine): ImageBuilds {
  const sh = (machineId: string, script: string, args: string[] = []) =>
    pipe(machineId, ['sh', '-c', script, 'sh', ...args])

  return {
    run: (machineId, order, built, onLine, signal) =>
      asking(async () => {
        const stream = await sh(machineId, buildScript, argumentsOf(order))
        const stop = (): unknown => stream.end()
        signal?.addEventListener('abort', stop, { once: true })
        if (signal?.aborted) stop()
        else stream.write(inputOf(order))
        let result: { of: Awaited<ReturnType<typeof built>> } | null = null
        let failure: Error | null = null
        const last: string[] = []
        try {
          for await (const line of linesOf(stream)) {
            if (line === says.waits) onLine('waiting for another build on this worker')
            else if (line === says.missing) failure = folderGone()
            else if (line.startsWith(says.ended) && !signal?.aborted) {
              const code = Number(line.slice(says.ended.length))
              if (code === 0) result = { of: await built() }
              else failure = failureOf(code, order, last)
            } else if (!line.startsWith('keelson: ') && !noise.test(line)) {
              onLine(line)
              if (last.push(line) > 20) last.shift()
            }
            if (result || failure) stop()
          }
        } finally {
          signal?.removeEventListener('abort', stop)
          stop()
        }
        signal?.throwIfAborted()
        if (failure) throw failure
        if (!result) throw new EngineUnavailable('The build was interrupted')
        return result.of
      }, signal),

    between: async (machineId, work) => {
      const stream = await sh(machineId, holdTurn)
      try {
        for await (const line of linesOf(stream)) if (line === says.turn) return await work()
        throw new EngineUnavailable('The worker does not answer')
      } finally {
        stream.end()
      }
    },

    end: async (machineId, id) => {
      await outputOf(pipe, machineId, ['sh', '-c', endScript, 'sh', id])
    },

    prune: async (machineId, cacheBytes) => {
      await outputOf(pipe, machineId, ['sh', '-c', prune, 'sh', String(cacheBytes)])
    },
  }
}

function argumentsOf({ id, folder, dockerfile, reference, target, timeout_sec, ...order }: BuildOrder) {
  const path = 'path' in dockerfile ? `${folder}/${dockerfile.path}` : `${scratch(id)}/Dockerfile`
  return [
    id,
    folder,
    String(timeout_sec),
    `--file=${path}`,
    `--tag=${reference}`,
    `--label=${builtLabel}`,
    ...(target === null ? [] : [`--target=${target}`]),
    ...Object.entries(order.build_args).map(([name, value]) => `--build-arg=${name}=${value}`),
    ...Object.keys(order.secrets).map((name) => `--secret=id=${name},env=KEELSON_SECRET_${name}`),
  ]
}

const base64 = (value: string): string => Buffer.from(value).toString('base64')

function inputOf({ dockerfile, secrets }: BuildOrder): string {
  const files =
    'text' in dockerfile ? { Dockerfile: dockerfile.text, 'Dockerfile.dockerignore': dockerfile.ignore } : {}
  return [
    ...Object.entries(files).map(([name, value]) => `file ${name} ${base64(value)}\n`),
    ...Object.entries(secrets).map(([name, value]) => `secret ${name} ${base64(value)}\n`),
    'go\n',
  ].join('')
}

/** The client says so. What a step says has the step's number or a time before it. */
const engineAway =
  /^(ERROR: )?(failed to dial gRPC|cannot connect to the Docker daemon|error during connect)/im

const folderGone = () =>
  new BuildFailed(
    'The artifact’s files are no longer on the worker, which keeps the last three: push it again',
    'artifact_gone',
  )

function failureOf(code: number, { timeout_sec }: BuildOrder, last: string[]): Error {
  if (code === timedOut)
    return new BuildFailed(`The build was ended after ${timeout_sec} s`, 'build_timed_out')
  const output = last.join('\n')
  if (engineAway.test(output)) return new EngineUnavailable('The engine of the worker does not answer')
  // Without the output as its cause, which may have secrets.
  if (/no space left on device/i.test(output)) return new MachineDiskFull()
  const why = last.findLast((line) => line.trim())
  return new BuildFailed(why ? `The build failed: ${why.slice(0, 500)}` : 'The build failed')
}

/** The lines of a stream. A longer one than 64 KiB is broken. */
async function* linesOf(stream: Readable): AsyncGenerator<string> {
  stream.setEncoding('utf8')
  let rest = ''
  for await (const chunk of stream) {
    const lines = `${rest}${chunk}`.split(/\r?\n|\r/)
    rest = lines.pop() ?? ''
    yield* lines
    if (rest.length > longestLine) {
      yield rest
      rest = ''
    }
  }
  if (rest) yield rest
}
