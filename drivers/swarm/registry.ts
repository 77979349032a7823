import { createHash } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import { buffer } from 'node:stream/consumers'
import type { Duplex, Readable } from 'node:stream'
import { setTimeout as delay } from 'node:timers/promises'
import bcrypt from 'bcrypt'
import type Docker from 'dockerode'
import { pack } from 'tar-stream'
import { z } from 'zod'
import { asking, unless } from '../docker/errors.ts'
import { pullImage } from '../docker/images.ts'
import { jsonLines } from '../docker/streams.ts'
import { EngineRefused, EngineUnavailable, MachineDiskFull } from '../errors.ts'
import type { CopyImage, MachineRegistries, RegistrySpec } from '../image-builds.ts'
import type { DialMachine, PipeMachine } from '../swarms.ts'
import { StreamAgent } from '../system/stream-agent.ts'
import { engineOf } from './dial.ts'
import { forgetBuilt, unlessUsed } from './engine-images.ts'
import { outputOf } from './output.ts'
import { makePushGate } from './push-gate.ts'
import { manifestTypes, readAnswer, sendTo } from './registry-requests.ts'
import { allTags, type AskRegistry, digestOf, removeAbandoned, youngDigests } from './registry-tags.ts'

const name = 'keelson-registry'
const specLabel = 'keelson.spec'
const config = '/etc/keelson-registry/config.yml'
const collecting = '/run/keelson-registry.lock'
/** Waits in a machine until no garbage is collected. */
export const awaitCollection = ['flock', collecting, 'true']
const mebibyte = 1024 ** 2
const memoryBytes = 128 * mebibyte
// A VM without KVM takes half a minute to start a container on a busy host.
const answersWithinMs = 120_000
const lookEveryMs = 100
/** Passwords are random: a slow hash would only slow the workers that pull. */
const rounds = 4

interface Parts {
  dial: DialMachine
  pipe: PipeMachine
  copy: CopyImage
  connectFrom: (machineId: string, address: string, port: number) => Promise<Duplex>
}

const PushNews = z.object({
  error: z.string().optional(),
  aux: z.object({ Digest: z.string().optional() }).optional(),
})

/** Registries (CNCF Distribution, version 2 or 3), each a container of its machine's engine. */
export function makeMachineRegistries({ dial, pipe, copy, connectFrom }: Parts): MachineRegistries {
  const at = (machineId: string) => engineOf<Docker>(dial, machineId)
  const gate = makePushGate()

  const agentOf = (machineId: string, spec: RegistrySpec) =>
    new StreamAgent(() => connectFrom(machineId, spec.ip_address, spec.port))

  /** Asks the registry's own API. */
  const ask = async (machineId: string, spec: RegistrySpec, method: string, path: string) =>
    readAnswer(
      await sendTo(agentOf(machineId, spec), spec, {
        method,
        path,
        headers: { accept: manifestTypes, connection: 'close' },
        signal: AbortSignal.timeout(answersWithinMs),
      }),
    )

  async function awaitAnswer(machineId: string, spec: RegistrySpec, signal?: AbortSignal): Promise<void> {
    const deadline = performance.now() + answersWithinMs
    for (;;) {
      const status = await ask(machineId, spec, 'GET', '/v2/').then(
        (answer) => answer.status,
        () => 0,
      )
      if (status === 200) return
      if (performance.now() > deadline) throw new EngineUnavailable('The registry does not start')
      await delay(lookEveryMs, undefined, signal ? { signal } : {})
    }
  }

  async function create(machineId: string, spec: RegistrySpec, hash: string): Promise<void> {
    const docker = at(machineId)
    const container = await docker.createContainer({
      name,
      Image: spec.image,
      Entrypoint: ['registry'],
      Cmd: ['serve', config],
      Labels: { [specLabel]: hash },
      ExposedPorts: { '5000/tcp': {} },
      HostConfig: {
        Binds: [`${name}:/var/lib/registry`],
        Memory: memoryBytes,
        RestartPolicy: { Name: 'always' },
        PortBindings: { '5000/tcp': [{ HostIp: spec.ip_address, HostPort: String(spec.port) }] },
        CapDrop: ['ALL'],
        SecurityOpt: ['no-new-privileges'],
      },
    })
    await container.putArchive(await filesOf(spec, hash), { path: '/' })
    await container.start()
  }

  /** What the registry says of its errors, the engine does not repeat. */
  async function logOf(machineId: string, since: number): Promise<string> {
    const log = at(machineId).getContainer(name).logs({ since, stdout: true, stderr: true, follow: false })
    return (await log.catch(() => '')).toString()
  }

  /** Gives back the disk that a push has taken. */
  async function dropPush(machineId: string, image: Docker.Image): Promise<void> {
    await image.remove().catch(unlessUsed)
    await gate.collect(machineId, async () => void (await shell(machineId, dropUploads)))
  }

  const shell = (machineId: string, script: string, args: string[] = []): Promise<string> =>
    outputOf(pipe, machineId, ['sh', '-c', script, 'sh', ...args])

  /** One that an interrupted process has begun would remove layers whose image is not there yet. */
  const earlierCollection = new Map<string, Promise<string>>()
  function earlierEnds(machineId: string): Promise<string> {
    const ends = earlierCollection.get(machineId) ?? outputOf(pipe, machineId, awaitCollection)
    earlierCollection.set(machineId, ends)
    ends.catch(() => earlierCollection.delete(machineId))
    return ends
  }

  return {
    ensure: (machineId, spec, signal) =>
      asking(async () => {
        const docker = at(machineId)
        const hash = createHash('sha256').update(JSON.stringify(spec)).digest('hex')
        const there = await unless([404], docker.getContainer(name).inspect())
        if (there?.Config.Labels[specLabel] !== hash) {
          if ((await copy(machineId, spec.image, signal)) === 'absent')
            await pullImage(docker, spec.image, signal ? { signal } : {})
          if (there) await unless([404], docker.getContainer(name).remove({ force: true }))
          // 409: another call has made it.
          await unless([409], create(machineId, spec, hash))
        } else if (!there.State.Running) await unless([304], docker.getContainer(name).start())
        try {
          await awaitAnswer(machineId, spec, signal)
        } catch (error) {
          // Half made, perhaps: the next call makes it anew. Its images are in the volume.
          if (!signal?.aborted) await unless([404], docker.getContainer(name).remove({ force: true }))
          throw error
        }
      }, signal),

    push: (machineId, { users: [user] }, reference, signal) =>
      asking(async () => {
        await earlierEnds(machineId)
        const image = at(machineId).getImage(reference)
        const since = Math.floor(Date.now() / 1000)
        const colon = reference.lastIndexOf(':')
        const pushing: Promise<NodeJS.ReadableStream> = at(machineId)
          .getImage(reference.slice(0, colon))
          .push({
            tag: reference.slice(colon + 1),
            authconfig: { username: user?.name ?? '', password: user?.password ?? '', serveraddress: '' },
            ...(signal ? { abortSignal: signal } : {}),
          })
        const stream = (await pushing) as Readable
        let digest: string | undefined
        for await (const { error, aux } of jsonLines(stream, PushNews)) {
          if (error !== undefined) {
            const failure = pushFailure(error, await logOf(machineId, since))
            if (failure instanceof MachineDiskFull) await dropPush(machineId, image)
            throw failure
          }
          digest = aux?.Digest ?? digest
        }
        if (digest === undefined) throw new EngineUnavailable('The push of the image was interrupted')
        return { digest, size_bytes: (await image.inspect()).Size }
      }, signal),

    remove: (machineId, spec, images, kept) =>
      asking(() =>
        gate.collect(machineId, async () => {
          const docker = at(machineId)
          const own = `${spec.ip_address}:${spec.port}/`
          const asks: AskRegistry = (method, path) => ask(machineId, spec, method, path)
          const tags = await allTags(asks)
          const keptTags = new Set([...kept.tags, ...kept.images.map(({ tag }) => tag)])
          const known = new Set([...keptTags, ...images.map(({ tag }) => tag)])
          const keptDigests = new Set([
            ...kept.digests,
            ...(await Promise.all(kept.images.map((one) => digestOf(asks, one)))),
            ...(await youngDigests(asks, tags, known)),
          ])
          for (const { image, tag } of images) {
            const digest = await digestOf(asks, { image, tag })
            if (digest && !keptDigests.has(digest)) await asks('DELETE', `/v2/${image}/manifests/${digest}`)
            // One that an earlier version of the platform built has no label.
            await docker.getImage(`${own}${image}:${tag}`).remove().catch(unlessUsed)
          }
          await removeAbandoned(asks, tags, { known, digests: keptDigests })
          await forgetBuilt(docker, own, keptTags)
          await shell(machineId, `${dropUploads}\n${collect}`)
        }),
      ),

    async relay(machineId, spec, { method, path, headers, body, signal, pushes }) {
      const asked = { method, path, headers: { ...headers, connection: 'close' }, body, signal }
      const send = (): Promise<IncomingMessage> => sendTo(agentOf(machineId, spec), spec, asked)
      if (!pushes) return send()
      await earlierEnds(machineId)
      const answer = await gate.write(machineId, pushes, send)
      const [, image, upload] = uploadPath.exec(path) ?? []
      if ((answer.statusCode ?? 0) >= 500 && image && upload)
        await shell(machineId, dropUploadIfFull, [image, upload])
      return answer
    },
  }
}

/** A registry that starts again answers with all kinds of errors: but for two, the next try may succeed. */
function pushFailure(words: string, log: string): Error {
  const cause = new Error(words)
  if (/no space left/i.test(words + log)) return new MachineDiskFull(cause)
  if (/denied|unauthorized/i.test(words))
    return new EngineRefused('The registry of the deploy server refuses the image', cause)
  return new EngineUnavailable('The image could not be pushed to the registry', cause)
}

const findVolume = `volume=$(docker volume inspect --format '{{.Mountpoint}}' ${name})`
/** Files are emptied first: after a failed write, the registry holds them open. */
const drop = `drop() { find "$@" -type f -exec truncate -s 0 {} + && rm -rf "$@"; }`

/** Layers whose push has ended without them: the registry keeps them for a week. */
const dropUploads = `
${drop}
${findVolume} && find "$volume" -type d -path '*/_uploads/*' -prune | while read -r upload; do drop "$upload"; done
`

export const uploadPath = /^\/v2\/([a-z0-9._/-]+)\/blobs\/uploads\/([\w-]+)/
/** Arguments: the repository and the upload. */
export const dropUpload = `
${drop}
${findVolume} && drop "$volume/docker/registry/v2/repositories/$1/_uploads/$2"
`
/** The registry lets nobody end an upload of which it has written a part without saying so. */
const dropUploadIfFull = `
${findVolume} && [ "$(df -BM --output=avail "$volume" | tail -n 1 | tr -dc 0-9)" -lt 4 ] || exit 0
${dropUpload}
`

/** Goes on if this process is killed: what must not run beside it waits for the lock (awaitCollection). */
const collect = `exec flock ${collecting} docker exec ${name} registry garbage-collect ${config} 2>&1`

/** The configuration and the users, as a tar. The registry has no cache: it would believe in blobs that were removed. */
async function filesOf({ users }: RegistrySpec, secret: string): Promise<Buffer> {
  const lines = await Promise.all(
    users.map(async ({ name: user, password }) => `${user}:${await bcrypt.hash(password, rounds)}\n`),
  )
  const files = pack()
  files.entry({ name: config.slice(1), mode: 0o600 }, settings(secret))
  files.entry({ name: `${folderOf(config)}/htpasswd`.slice(1), mode: 0o600 }, lines.join(''))
  files.finalize()
  return buffer(files)
}

const folderOf = (path: string): string => path.slice(0, path.lastIndexOf('/'))

/** The secret signs the state of uploads, which belongs to this container alone. */
const settings = (secret: string): string => `version: 0.1
log:
  level: warn
  accesslog:
    disabled: true
storage:
  filesystem:
    rootdirectory: /var/lib/registry
  delete:
    enabled: true
http:
  addr: :5000
  secret: ${secret}
auth:
  htpasswd:
    realm: registry
    path: ${folderOf(config)}/htpasswd
`
