import { z } from 'zod'
import type { TaggedImage } from '../image-builds.ts'
import type { RegistryAnswer } from './registry-requests.ts'

// The tags of a registry. The platform gives each manifest an id of its own as its tag.

export type AskRegistry = (method: string, path: string) => Promise<RegistryAnswer>

const anHourMs = 3_600_000
const Catalog = z.object({ repositories: z.array(z.string()).nullable() })
const Tags = z.object({ tags: z.array(z.string()).nullable() })

/** Undefined if there is no such image. */
export async function digestOf(ask: AskRegistry, { image, tag }: TaggedImage): Promise<string | undefined> {
  const { status, digest } = await ask('HEAD', `/v2/${image}/manifests/${tag}`)
  return status === 200 ? digest : undefined
}

/**
 * Removes manifests that no image needs: a push was interrupted before the platform heard of it, or they were parts of an
 * index that is gone. Those of the last hour may be of a push that is under way.
 */
export async function removeAbandoned(
  ask: AskRegistry,
  tags: TaggedImage[],
  { known, digests }: { known: ReadonlySet<string>; digests: ReadonlySet<string | undefined> },
): Promise<void> {
  for (const { image, tag } of tags) {
    if (known.has(tag) || isYoung(tag)) continue
    const digest = await digestOf(ask, { image, tag })
    if (digest && !digests.has(digest)) await ask('DELETE', `/v2/${image}/manifests/${digest}`)
  }
}

/**
 * The digests of tags of the last hour that are not among the known ones. They may be of pushes that ended after the platform
 * said which images leave: one with the same content as a leaving image has its digest.
 */
export async function youngDigests(
  ask: AskRegistry,
  tags: TaggedImage[],
  known: ReadonlySet<string>,
): Promise<(string | undefined)[]> {
  const digests: (string | undefined)[] = []
  for (const one of tags) if (isYoung(one.tag) && !known.has(one.tag)) digests.push(await digestOf(ask, one))
  return digests
}

export async function allTags(ask: AskRegistry): Promise<TaggedImage[]> {
  const all: TaggedImage[] = []
  const { repositories } = Catalog.parse(JSON.parse((await ask('GET', '/v2/_catalog?n=1000')).body))
  for (const image of repositories ?? []) {
    const { status, body } = await ask('GET', `/v2/${image}/tags/list`)
    const tags = status === 200 ? (Tags.parse(JSON.parse(body)).tags ?? []) : []
    all.push(...tags.map((tag) => ({ image, tag })))
  }
  return all
}

const isYoung = (tag: string): boolean => madeAt(tag) >= Date.now() - anHourMs

/** A UUIDv7 begins with its time. */
const madeAt = (id: string): number => parseInt(id.replaceAll('-', '').slice(0, 12), 16)
