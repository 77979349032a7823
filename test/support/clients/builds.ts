import { gzipSync } from 'node:zlib'
import { type ArchiveEntry, tarOf } from '../archives.ts'
import type { Answer, Json } from './ask.ts'
import type { Accepted, Caller } from './caller.ts'

/** The fields of a build that tests read from the API. */
export interface BuildBody extends Json {
  id: string
  status: string
  status_reason: string | null
  operation_id: string | null
  artifact_id: string | null
  image: string
  tag: string
  generated: string | null
  digest: string | null
  image_state: string
}

/** The builds of one deploy server. */
export function buildsOf(caller: Caller, server: string) {
  const at = `/api/v1/deploy-servers/${server}`
  const path = `${at}/builds`
  const builds = {
    /** Pushes files as an artifact, and waits until it is ready. */
    push: async (name: string, files: Record<string, string> | ArchiveEntry[]): Promise<string> => {
      const entries = Array.isArray(files)
        ? files
        : Object.entries(files).map(([file, content]) => ({ name: file, content }))
      const content_b64 = gzipSync(await tarOf(entries)).toString('base64')
      const { id, operation } = await caller.begin('POST', `${at}/artifacts`, { name, content_b64 })
      await operation.success()
      return id
    },
    create: (body: Json): Promise<Accepted> => caller.begin('POST', path, body),
    /** Builds from these files. */
    make: async (
      image: string,
      files: Record<string, string> | ArchiveEntry[],
      more: Json = {},
    ): Promise<BuildBody> => {
      const artifact_id = await builds.push(image, files)
      const { id, operation } = await builds.create({ artifact_id, image, ...more })
      await operation.success()
      return builds.get(id)
    },
    get: (id: string) => caller.get<BuildBody>(`${path}/${id}`),
    list: async (query = '') => (await caller.get<{ items: BuildBody[] }>(`${path}?limit=100${query}`)).items,
    cancel: (id: string): Promise<Answer> => caller.ask('POST', `${path}/${id}/cancel`),
    /** Its log, as text. */
    log: async (id: string, query = ''): Promise<string> =>
      String((await caller.ask('GET', `${path}/${id}/logs${query}`)).body['text'])
        .split('\n')
        .filter((line) => line.startsWith('{'))
        .map((line) => (JSON.parse(line) as { line: string }).line)
        .join('\n'),
  }
  return builds
}
