import { createHash } from 'node:crypto'
import { PassThrough } from 'node:stream'
import { buffer, text } from 'node:stream/consumers'
import { newId } from '../../lib/ids.ts'
import { type DatabaseType, engineOf, imageOf } from '../../models/deploy/engines/index.ts'
import type { Configuration } from '../../models/deploy/engines/engine.ts'
import { docker, testTenant } from './containers.ts'
import { eventually } from './eventually.ts'

// An engine of the catalogue in a container of its own, without a deploy server.

/** Of the engines from which copies are made. */
export const copied = { user: 'ua1', password: 'pa1', database: 'da1', root_password: 'ra1' }
const images = Object.fromEntries(
  ['postgresql', 'mariadb', 'mongodb', 'redis', 'clickhouse'].map((type) => [type, `keelson/test-${type}`]),
)

export type RunningEngine = Awaited<ReturnType<typeof runEngine>>
export type Dumped = Awaited<ReturnType<RunningEngine['dump']>>

interface EngineOptions {
  version?: string
  configuration?: Configuration
  password?: string
}

/** As the platform runs it, but without a network. removeTestContainers() takes it away. */
export async function runEngine(
  type: DatabaseType,
  {
    version = engineOf(type).versions[0] ?? '',
    configuration = {},
    password = copied.password,
  }: EngineOptions = {},
) {
  const { env, command, memory_mib, healthy, copies } = engineOf(type)
  const credentials = { ...copied, password }
  const variables = { ...env(credentials), KEELSON_COPY_PASSWORD: copied.password }
  const container = await docker.createContainer({
    Image: imageOf(type, version, images),
    Env: Object.entries(variables).map(([name, value]) => `${name}=${value}`),
    Cmd: command({ memory_mib: memory_mib.usual, configuration, credentials }),
    Labels: { 'keelson.tenant': testTenant, 'keelson.resource': newId() },
    HostConfig: { NetworkMode: 'none' },
  })
  await container.start()

  /** Runs a script with this input; \`onOutput\` sees its output as it comes. */
  async function start(script: string, input?: Uint8Array) {
    const exec = await container.exec({
      Cmd: ['/bin/sh', '-c', script],
      AttachStdin: input !== undefined,
      AttachStdout: true,
      AttachStderr: true,
    })
    const stream = await exec.start({ hijack: true, stdin: input !== undefined })
    const [output, errors] = [new PassThrough(), new PassThrough()]
    docker.modem.demuxStream(stream, output, errors)
    const close = () => [output, errors].forEach((one) => one.end())
    stream.once('end', close).once('close', close)
    if (input !== undefined) stream.end(input)
    return { exec, stream, output, errors }
  }

  async function run(script: string, input?: Uint8Array) {
    const { exec, output, errors } = await start(script, input)
    const [written, said] = await Promise.all([buffer(output), text(errors)])
    return { code: (await exec.inspect()).ExitCode, written, said }
  }

  await eventually(async () => (await run(healthy)).code === 0)

  return {
    container,
    start,
    run,
    /** What a script writes. Throws if it fails. */
    async ask(script: string): Promise<string> {
      const { code, written, said } = await run(script)
      if (code !== 0) throw new Error(`exit code ${code}: ${said.slice(-1000)}`)
      return written.toString().trim()
    },
    async dump() {
      const { code, written, said } = await run(copies.dump)
      const counts = new Map(
        [...said.matchAll(/^count (\d+) (\d+) (.+)$/gm)].map(([, least, most, name]) => [
          name ?? '',
          [Number(least), Number(most)] as const,
        ]),
      )
      return { code, copy: written, counts, said }
    },
    restore: (copy: Uint8Array) => run(copies.restore, copy),
    async count(): Promise<Map<string, number>> {
      const { written } = await run(copies.count)
      return new Map(
        [...written.toString().matchAll(/^count (\d+) (.+)$/gm)].map(([, n, name]) => [
          name ?? '',
          Number(n),
        ]),
      )
    },
  }
}

/** Without their values, which are long. */
export const hashOf = (value: string): string => createHash('sha256').update(value).digest('hex')
