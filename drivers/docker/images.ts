import { text } from 'node:stream/consumers'
import type Docker from 'dockerode'
import { z } from 'zod'
import type { PullOptions, RegistryLogin } from '../containers.ts'
import { ping } from './connection.ts'
import { statusOf, unless, wordsOf } from './errors.ts'
import { jsonLines, openStream } from './streams.ts'
import { EngineError, EngineUnavailable, ImageAccessDenied, ImageNotFound } from '../errors.ts'

/** An image on this engine: its local id, and the digest that identifies the same bytes everywhere. */
export interface LocalImage {
  id: string
  digest: string
}

const PullNews = z.object({
  id: z.string().optional(),
  status: z.string().optional(),
  progress: z.string().optional(),
  progressDetail: z.object({ total: z.number().optional() }).optional(),
  error: z.string().optional(),
})

// The engine contacts the registry before its first message, and reports often while it downloads. By itself, it waits
// minutes for a registry that drops packets.
const registryAnswersMs = 15_000
const silenceMs = 120_000
const engineAnswersMs = 2_000

/**
 * Finds the image on the engine, without asking a registry. The digest is the registry's, or the image id if the image
 * was never in a registry. Throws ImageNotFound.
 */
export async function localImage(docker: Docker, image: string, digest: string | null): Promise<LocalImage> {
  const found = await findLocal(docker, image, digest)
  if (!found) throw new ImageNotFound(image)
  return found
}

/** Called during a download, with the size of the layers as far as it is known. If it throws, the download ends. */
export type OnLayers = (bytes: number) => Promise<void>

/** Makes the image present. Throws ImageNotFound, ImageAccessDenied, EngineUnavailable, and what `onLayers` throws. */
export async function pullImage(
  docker: Docker,
  image: string,
  options: PullOptions,
  onLayers: OnLayers = async () => {},
): Promise<LocalImage> {
  const digest = options.digest ?? null
  return (await findLocal(docker, image, digest)) ?? downloadImage(docker, image, options, onLayers)
}

/** The same, and asks the registry in any case. */
export async function downloadImage(
  docker: Docker,
  image: string,
  options: PullOptions,
  onLayers: OnLayers,
): Promise<LocalImage> {
  await download(docker, image, options, onLayers)
  return localImage(docker, image, options.digest ?? null)
}

/**
 * Asks the image's registry for its manifest, with this login or with none. Throws ImageNotFound, ImageAccessDenied,
 * EngineUnavailable.
 */
export async function needAccess(
  docker: Docker,
  image: string,
  login: RegistryLogin | null,
  signal?: AbortSignal,
): Promise<void> {
  const silence = AbortSignal.timeout(registryAnswersMs)
  const either = signal ? AbortSignal.any([signal, silence]) : silence
  try {
    await text(await openStream(docker, 'GET', `/distribution/${tagged(image)}/json`, {}, either, login))
  } catch (error) {
    if (signal?.aborted) throw error
    throw await refusalOf(docker, image, login, error, silence.aborted)
  }
}

/** The name by which the engine gets and has an image. */
export const referenceOf = (image: string, digest: string | null): string =>
  digest ? `${repositoryOf(image)}@${digest}` : tagged(image)

// The shape of a reference: host, path, tag, digest. Nothing else may enter the engine's URLs.
const imageName = /^\w[\w.-]*(:\d+)?(\/\w[\w.-]*)*(:\w[\w.-]*)?(@sha256:[0-9a-f]{64})?$/

/** Null if the engine does not have it. */
export async function findLocal(
  docker: Docker,
  image: string,
  digest: string | null,
): Promise<LocalImage | null> {
  if (!imageName.test(image)) throw new ImageNotFound(image)
  // With a tag, since the engine takes a bare name for the beginning of an id, too.
  const names = digest ? [`${repositoryOf(image)}@${digest}`, digest] : [tagged(image)]
  for (const name of names) {
    // 400: not a valid image name.
    const info = await unless([400, 404], docker.getImage(name).inspect())
    if (!info) continue
    const registryDigest = info.RepoDigests?.find((known) => known.startsWith(`${repositoryOf(image)}@`))
    return { id: info.Id, digest: digest ?? registryDigest?.split('@')[1] ?? info.Id }
  }
  return null
}

async function download(
  docker: Docker,
  image: string,
  options: PullOptions,
  onLayers: OnLayers,
): Promise<void> {
  const reference = referenceOf(image, options.digest ?? null)
  const layers = new Map<string, number>()
  const login = (await options.login?.()) ?? null
  const silence = new AbortController()
  const signal = options.signal ? AbortSignal.any([options.signal, silence.signal]) : silence.signal
  let timer = setTimeout(() => silence.abort(), registryAnswersMs)
  let answered = false
  try {
    const asked = nameAndTag(reference)
    const stream = await openStream(docker, 'POST', '/images/create', asked, signal, login)
    for await (const said of jsonLines(stream, PullNews)) {
      if (said.error) throw Object.assign(new Error(said.error), { statusCode: 500 })
      answered = true
      clearTimeout(timer)
      timer = setTimeout(() => silence.abort(), silenceMs)
      const total = said.progressDetail?.total
      if (said.id && total) layers.set(said.id, Math.max(layers.get(said.id) ?? 0, total))
      await onLayers([...layers.values()].reduce((sum, bytes) => sum + bytes, 0))
      options.onProgress?.([said.id, said.status, said.progress].filter(Boolean).join(' '))
    }
  } catch (error) {
    if (options.signal?.aborted || error instanceof EngineError) throw error
    if (answered) throw new EngineUnavailable(`The download of the image ${image} was interrupted`, error)
    throw await refusalOf(docker, image, login, error, silence.signal.aborted)
  } finally {
    clearTimeout(timer)
  }
}

// What registries and the engine say. `denied` is also Docker Hub's word for an image that is nowhere.
const asksForLogin = /unauthorized|no basic auth credentials|authentication required|incorrect username/i
const denies = /\bdenied\b|forbidden/i

/** What to throw if the engine did not get its answer from a registry. */
async function refusalOf(
  docker: Docker,
  image: string,
  login: RegistryLogin | null,
  error: unknown,
  isSilent: boolean,
): Promise<unknown> {
  // Without a status the engine itself does not answer.
  if (!isSilent && statusOf(error) === undefined) return error
  // It is not the registry that is silent if the engine does not answer anything.
  if (isSilent && !(await answers(docker)))
    return new EngineUnavailable('The container engine does not answer', error)
  const words = wordsOf(error)
  if (asksForLogin.test(words) || (login && denies.test(words)))
    return new ImageAccessDenied(image, login !== null, error)
  return new ImageNotFound(image, error)
}

/** Whether the engine answers at once. */
const answers = (docker: Docker): Promise<boolean> =>
  ping(docker, AbortSignal.timeout(engineAnswersMs)).then(
    () => true,
    () => false,
  )

/** Strips tag and digest from `host:5000/name:tag@digest`. A colon before the last slash is a port. */
export function repositoryOf(image: string): string {
  const [name = image] = image.split('@')
  const colon = name.lastIndexOf(':')
  return colon > name.lastIndexOf('/') ? name.slice(0, colon) : name
}

const tagged = (image: string): string =>
  image.includes('@') || repositoryOf(image) !== image ? image : `${image}:latest`

// The engine takes a digest instead of a tag. For a name without either, it would pull all tags.
function nameAndTag(reference: string): { fromImage: string; tag: string } {
  const [name = reference, digest] = reference.split('@')
  const repository = repositoryOf(name)
  return { fromImage: repository, tag: digest ?? (name.slice(repository.length + 1) || 'latest') }
}
